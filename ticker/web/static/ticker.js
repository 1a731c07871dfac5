// What htmx leaves to a page: looking again while somebody watches, keys, and what a change has to say.
(() => {
  "use strict";
  const root = document.body.dataset.root;
  const said = document.getElementById("said");
  const live = () => document.getElementById("live");
  const busy = () => changing > 0 || (live() !== document.activeElement && live().contains(document.activeElement));
  let changing = 0; // changes on their way
  let silence = 0;
  let pressed = ""; // by key: the label of what is changing something
  const opened = () => document.querySelector("details.still[open]") !== null;
  const marked = () => document.querySelector("#many input[name=id]:checked") !== null;
  const say = (text, bad) => {
    said.textContent = text;
    said.classList.toggle("bad", Boolean(bad));
    clearTimeout(silence);
    silence = setTimeout(() => { said.textContent = ""; }, 8000);
  };
  const keep = (work) => { try { work(sessionStorage); } catch { /* a browser that keeps nothing */ } };
  const look = () => htmx.trigger(live(), "look");
  // A button that was switched off, or swapped, loses the focus: who pressed a key goes on there, or before the screen's first control.
  const refocus = () => {
    if (!pressed || document.activeElement !== document.body) return;
    const same = [...live().querySelectorAll(".actions button, .actions summary")].find((one) => one.textContent === pressed);
    (same || document.getElementById("main")).focus();
  };
  // The Tab key stops once in each strip, the arrows lead along its marks.
  const stop = (mark) => mark.parentElement.querySelectorAll("a").forEach((one) => { one.tabIndex = one === mark ? 0 : -1; });
  const stops = () => document.querySelectorAll(".strip a:last-child").forEach(stop);
  stops();

  // Nothing is asked for in a hidden tab, while something on the screen has the focus or was opened, or while tasks are marked.
  const every = Number(live().dataset.every || 0);
  if (every) {
    const pace = document.getElementById("pace");
    const usual = pace.textContent;
    const ended = () => !live().dataset.every; // what is shown changes no more, or is gone
    const waits = () => document.hidden || busy() || marked() || opened();
    setInterval(() => {
      pace.textContent = ended() ? "stands still" : waits() ? "waits, as you are at work here; r looks again" : usual;
      if (!ended() && !waits()) look();
    }, every * 1000);
    document.addEventListener("visibilitychange", () => ended() || waits() || look());
  } else {
    document.getElementById("pace").textContent = "stands still";
  }

  document.body.addEventListener("said", (event) => {
    say(event.detail.value);
    document.querySelectorAll("#all, #many input").forEach((box) => { box.checked = false; });
    if (every) look();
  });
  // What was done is said on the screen to which it leads.
  document.body.addEventListener("said_there", (event) => keep((kept) => kept.setItem("said", event.detail.value)));
  keep((kept) => {
    if (kept.getItem("said")) say(kept.getItem("said"));
    kept.removeItem("said");
  });
  document.body.addEventListener("htmx:beforeRequest", (event) => {
    if (event.detail.requestConfig.verb !== "post") return;
    changing += 1;
    const control = event.target.closest("details.still")?.querySelector("summary") || event.target;
    pressed = document.activeElement.matches(":focus-visible") ? control.textContent : "";
    document.querySelectorAll(".error").forEach((p) => { p.textContent = ""; });
  });
  document.body.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.requestConfig.verb !== "post") return;
    changing -= 1;
    refocus();
    if (!event.detail.successful) pressed = "";
  });
  // A screen that is gone, or cannot be had now, says so in its place; so does a part of one. A proxy's page has no place in it.
  document.body.addEventListener("htmx:beforeSwap", (event) => {
    const { requestConfig, target, xhr } = event.detail;
    if (requestConfig.verb !== "get" || xhr.status < 400) return;
    event.detail.shouldSwap = xhr.responseText.includes('id="live"');
    if (!event.detail.shouldSwap) say(`the server answered ${xhr.status}`, true);
    if (target !== live()) Object.assign(event.detail, { selectOverride: ".problem", ignoreTitle: true });
  });
  document.body.addEventListener("htmx:afterSwap", (event) => {
    if (event.detail.target.id !== "live") return;
    stops();
    refocus();
    if (!changing) pressed = "";
  });
  // What a run left is asked for when it is opened, until it is there.
  document.addEventListener("toggle", (event) => {
    const at = event.target;
    if (at.matches("details[hx-trigger=read]") && at.open && !at.querySelector(".texts")) htmx.trigger(at, "read");
  }, true);
  document.body.addEventListener("htmx:responseError", (event) => {
    if (event.detail.requestConfig.verb === "get") return;
    let problem = {};
    try { problem = JSON.parse(event.detail.xhr.responseText); } catch { /* a page, or a proxy's own words */ }
    const text = problem.detail || `the server answered ${event.detail.xhr.status}`;
    const beside = document.getElementById(`${problem.field}-error`) || document.getElementById("error");
    if (!beside) { say(text, true); return; }
    beside.textContent = text;
    const input = document.getElementById(problem.field);
    if (input) {
      const more = input.closest("details");
      if (more) more.open = true;
      input.setAttribute("aria-invalid", "true");
      input.focus();
    }
  });
  document.body.addEventListener("htmx:sendError", () => say("the server does not answer", true));
  document.body.addEventListener("input", (event) => event.target.removeAttribute("aria-invalid"));
  document.body.addEventListener("change", (event) => {
    if (event.target.id !== "all") return;
    document.querySelectorAll("#many input[name=id]").forEach((box) => { box.checked = event.target.checked; });
  });

  const keys = document.getElementById("keys");
  document.getElementById("help").addEventListener("click", () => keys.showModal());
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea") || keys.open) return;
    const along = { ArrowLeft: "previousElementSibling", ArrowRight: "nextElementSibling" }[event.key];
    if (event.key === "?") keys.showModal();
    else if (along && event.target.matches(".strip a")) {
      const mark = event.target[along] || event.target;
      stop(mark);
      mark.focus();
    } else if (event.key === "r" && every) look();
    else if (event.key === "/") {
      const search = document.getElementById("search");
      if (search) { search.focus(); search.select(); } else { location.assign(`${root}/tasks#search`); }
    } else return;
    event.preventDefault();
  });
  if (location.hash === "#search") document.getElementById("search")?.focus();
})();
