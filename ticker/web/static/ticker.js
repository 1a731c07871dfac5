// What htmx leaves to a page: looking again while somebody watches, keys, and what a change has to say.
(() => {
  "use strict";
  const root = document.body.dataset.root;
  const said = document.getElementById("said");
  const live = () => document.getElementById("live");
  const busy = () => live().contains(document.activeElement) && document.activeElement.matches("input, select, textarea");
  const marked = () => document.querySelector("#many input[name=id]:checked") !== null;
  const say = (text, bad) => {
    said.textContent = text;
    said.classList.toggle("bad", Boolean(bad));
  };
  const look = () => htmx.trigger(live(), "look");

  // Nothing is asked for in a hidden tab, while somebody types, or while tasks are marked for something.
  const every = Number(live().dataset.every || 0);
  if (every) {
    setInterval(() => document.hidden || busy() || marked() || look(), every * 1000);
    document.addEventListener("visibilitychange", () => document.hidden || marked() || look());
  } else {
    document.getElementById("pace").textContent = "stands still";
  }

  document.body.addEventListener("said", (event) => {
    say(event.detail.value);
    document.querySelectorAll("#many input:checked").forEach((box) => { box.checked = false; });
    if (every) look();
  });
  document.body.addEventListener("htmx:beforeRequest", (event) => {
    if (event.detail.requestConfig.verb === "post") document.querySelectorAll(".error").forEach((p) => { p.textContent = ""; });
  });
  document.body.addEventListener("htmx:responseError", (event) => {
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
    if (event.key === "?") keys.showModal();
    else if (event.key === "r") look();
    else if (event.key === "/") {
      const search = document.getElementById("search");
      if (search) { search.focus(); search.select(); } else { location.assign(`${root}/tasks#search`); }
    } else return;
    event.preventDefault();
  });
  if (location.hash === "#search") document.getElementById("search")?.focus();
})();
