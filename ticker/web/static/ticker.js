// Does what htmx leaves to the page: refreshes it while it is watched, handles keys, and shows the messages of changes.
(() => {
  "use strict";
  const root = document.body.dataset.root;
  const message = document.getElementById("said");
  const live = () => document.getElementById("live");
  const busy = () => changing > 0 || (live().contains(document.activeElement) && !document.activeElement.matches("#live, .wide"));
  let changing = 0; // changes in progress
  let silence = 0;
  let pressed = ""; // the label of the control that was pressed by key
  const opened = () => document.querySelector("details.still[open]") !== null;
  const marked = () => document.querySelector("#many input[name=id]:checked") !== null;
  const say = (text, bad, lasts = 8000) => {
    message.textContent = text;
    message.classList.toggle("bad", Boolean(bad));
    clearTimeout(silence);
    silence = setTimeout(() => { message.textContent = ""; }, lasts);
  };
  // Offers for ten seconds to undo what the message says.
  const offer = ({ path, values }) => {
    const undo = document.createElement("button");
    undo.type = "button";
    undo.textContent = "Undo";
    undo.addEventListener("click", () => {
      undo.disabled = true;
      htmx.ajax("POST", root + path, { values, swap: "none" });
    });
    say(message.textContent, false, 10000);
    message.append(" ", undo);
  };
  const keep = (work) => { try { work(sessionStorage); } catch { /* a browser without storage */ } };
  const look = () => htmx.trigger(live(), "look");
  // A button that is disabled or replaced loses the focus. After a key press, the focus returns to it, or to the start of the screen.
  const refocus = () => {
    if (!pressed || document.activeElement !== document.body) return;
    const same = [...live().querySelectorAll(".actions button, .actions summary")].find((one) => one.textContent === pressed);
    (same || document.getElementById("main")).focus();
  };
  // The Tab key stops once in each strip; the arrow keys move along its marks.
  const stop = (mark) => mark.parentElement.querySelectorAll("a").forEach((one) => { one.tabIndex = one === mark ? 0 : -1; });
  const stops = (screen) => screen.querySelectorAll(".strip a:last-child").forEach(stop);
  // On a phone, where the rows of a table are cards, each cell shows the head of its column.
  const heads = (screen) => screen.querySelectorAll("table").forEach((table) => {
    const names = [...table.tHead.querySelectorAll("th")].map((head) => head.textContent);
    [...table.tBodies[0].rows].forEach((row) => [...row.cells].forEach((cell, number) => {
      cell.dataset.head = cell.textContent.trim() || cell.querySelector("input") ? names[number] : "";
    }));
  });
  // Times are UTC. The browser's own time stands in their titles, or with the switch, in their place.
  const isLocal = () => { try { return localStorage.getItem("ticker-time") === "local"; } catch { return false; } };
  const zone = document.getElementById("zone");
  const times = (screen) => screen.querySelectorAll("time[datetime]").forEach((time) => {
    const at = new Date(time.dateTime);
    const here = new Date(at - at.getTimezoneOffset() * 60000).toISOString().slice(0, 19).replace("T", " ");
    time.title = `${time.dateTime.slice(0, 19).replace("T", " ")} UTC, ${here} local time`;
    if (isLocal() && /^\d{4}-/.test(time.textContent)) time.textContent = here;
  });
  const arrange = (screen) => {
    stops(screen);
    times(screen);
    if (isLocal()) screen.querySelectorAll("th").forEach((head) => { if (head.textContent.includes("(UTC)")) head.textContent = head.textContent.replace("(UTC)", "(local)"); });
    heads(screen);
  };
  if (isLocal()) zone.textContent = "times in tables are local, in sentences UTC";
  document.getElementById("switch").textContent = isLocal() ? "show UTC" : "show local time";
  document.getElementById("switch").addEventListener("click", () => {
    try { localStorage.setItem("ticker-time", isLocal() ? "utc" : "local"); } catch { /* a browser without storage */ }
    location.reload();
  });
  arrange(live());
  document.querySelector("nav [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });

  // A new answer changes only what differs, so that a selection, the focus and what was typed stay. A row that is new or says
  // something else, apart from times, flashes once.
  const said = (row) => [...row.cells].map((cell) => {
    const copy = cell.cloneNode(true);
    copy.querySelectorAll("time").forEach((time) => time.remove());
    return copy.textContent.trim();
  }).join();
  const flash = (row) => matchMedia("(prefers-reduced-motion: reduce)").matches
    || row.animate({ backgroundColor: ["var(--flash)", "transparent"] }, 3000);
  const put = (node, parent, before) => {
    parent.insertBefore(node, before);
    if (node.nodeType === Node.ELEMENT_NODE) htmx.process(node);
  };
  const patchRows = (body, fresh) => {
    const rows = new Map([...body.rows].map((row) => [row.dataset.key, row]));
    [...fresh.rows].forEach((news, number) => {
      const row = rows.get(news.dataset.key);
      const changed = !row || said(row) !== said(news);
      const place = body.rows[number] || null;
      if (!row) put(news, body, place);
      else {
        if (row !== place) body.insertBefore(row, place);
        patch(row, news);
      }
      if (changed) flash(row || news);
      rows.delete(news.dataset.key);
    });
    rows.forEach((row) => row.remove());
  };
  const patch = (old, fresh) => {
    if (old.isEqualNode(fresh)) return;
    if (old.nodeType === Node.TEXT_NODE && fresh.nodeType === Node.TEXT_NODE) { old.nodeValue = fresh.nodeValue; return; }
    const names = (node) => [...node.attributes].map((one) => one.name);
    const differ = old.nodeName === fresh.nodeName && old.attributes
      && [...new Set([...names(old), ...names(fresh)])].filter((name) => name !== "open" && old.getAttribute(name) !== fresh.getAttribute(name));
    if (!differ || (old !== live() && differ.some((name) => name === "id" || name.startsWith("hx-")))) {
      put(fresh, old.parentNode, old);
      old.remove();
      return;
    }
    differ.forEach((name) => { if (fresh.hasAttribute(name)) old.setAttribute(name, fresh.getAttribute(name)); else old.removeAttribute(name); });
    if (fresh.querySelector(":scope > tr[data-key]")) { patchRows(old, fresh); return; }
    const nodes = [...old.childNodes];
    [...fresh.childNodes].forEach((one, number) => { if (nodes[number]) patch(nodes[number], one); else put(one, old, null); });
    nodes.slice(fresh.childNodes.length).forEach((one) => one.remove());
  };
  const refresh = (text) => {
    const page = new DOMParser().parseFromString(text, "text/html");
    const fresh = page.getElementById("live");
    if (!fresh) return;
    arrange(fresh);
    patch(live(), fresh);
    document.title = page.title;
    const icon = (of) => of.querySelector("link[rel=icon]");
    if (icon(page)) icon(document).href = icon(page).getAttribute("href");
    if (!document.activeElement.checkVisibility()) document.activeElement.blur();
    refocus();
    if (!changing) pressed = "";
  };

  // Does not refresh in a hidden tab, while something on the screen has the focus or was opened, or while tasks are marked.
  const every = Number(live().dataset.every || 0);
  if (every) {
    const pace = document.getElementById("pace");
    const usual = pace.textContent;
    const ended = () => !live().dataset.every; // what is shown no longer changes, or is gone
    const waits = () => document.hidden || busy() || marked() || opened();
    setInterval(() => {
      pace.textContent = ended() ? "does not refresh" : waits() ? "paused while you work here; r refreshes" : usual;
      if (!ended() && !waits()) look();
    }, every * 1000);
    document.addEventListener("visibilitychange", () => ended() || waits() || look());
  } else {
    document.getElementById("pace").textContent = "does not refresh";
  }

  document.body.addEventListener("said", (event) => {
    say(event.detail.value);
    document.querySelectorAll("#all, #many input").forEach((box) => { box.checked = false; });
    document.querySelectorAll("details.still form").forEach((form) => form.reset());
    document.querySelectorAll("details.still[open]").forEach((one) => { one.open = false; });
    if (every) look();
  });
  // Shows the result on the screen to which a change leads.
  document.body.addEventListener("said_there", (event) => keep((kept) => kept.setItem("said", event.detail.value)));
  document.body.addEventListener("undo", (event) => offer(event.detail));
  document.body.addEventListener("undo_there", ({ detail: { path, values } }) => keep((kept) => kept.setItem("undo", JSON.stringify({ path, values }))));
  keep((kept) => {
    const [said, undo] = [kept.getItem("said"), kept.getItem("undo")];
    kept.removeItem("said");
    kept.removeItem("undo");
    if (said) say(said);
    if (undo) offer(JSON.parse(undo));
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
  // An error page replaces the screen, or the part of it, that cannot be shown. The page of a proxy does not.
  document.body.addEventListener("htmx:beforeSwap", (event) => {
    const { requestConfig, target, xhr } = event.detail;
    if (requestConfig.verb !== "get") return;
    const isScreen = xhr.responseText.includes('id="live"');
    if (target === live() && isScreen) {
      event.detail.shouldSwap = false;
      refresh(xhr.responseText);
      return;
    }
    if (xhr.status < 400) return;
    event.detail.shouldSwap = isScreen;
    if (!event.detail.shouldSwap) say(`the server answered ${xhr.status}`, true);
    if (target !== live()) Object.assign(event.detail, { selectOverride: ".problem", ignoreTitle: true });
  });
  // Asks before what concerns many tasks, with their number.
  const many = (count) => `${count} ${count === 1 ? "task" : "tasks"}`;
  document.body.addEventListener("htmx:confirm", (event) => {
    const { elt, question, issueRequest } = event.detail;
    if (elt.matches('[hx-include="#many"]')) {
      event.preventDefault();
      const count = document.querySelectorAll("#many input[name=id]:checked").length;
      if (!count) say("no task is marked", true);
      else if (!question || confirm(question.replace("#", many(count)))) issueRequest(true);
    } else if (elt.matches("[data-asks]")) {
      event.preventDefault();
      fetch(`${elt.dataset.asks}?${new URLSearchParams(new FormData(elt))}`).then(async (answer) => {
        if (!answer.ok || confirm((await answer.text()).trim())) issueRequest(true);
      }, () => say("the server does not answer", true));
    }
  });
  // Loads the texts of a run when they are opened, until they have arrived.
  document.addEventListener("toggle", (event) => {
    const at = event.target;
    if (at.matches("details[hx-trigger=read]") && at.open && !at.querySelector(".texts")) htmx.trigger(at, "read");
  }, true);
  document.body.addEventListener("htmx:responseError", (event) => {
    if (event.detail.requestConfig.verb === "get") return;
    let problem = {};
    try { problem = JSON.parse(event.detail.xhr.responseText); } catch { /* a page, or the answer of a proxy */ }
    const text = problem.detail || `the server answered ${event.detail.xhr.status}`;
    const field = (event.detail.elt.dataset.errors || "") + problem.field;
    const place = document.getElementById(`${field}-error`) || document.getElementById("error");
    if (!place) { say(text, true); return; }
    place.textContent = text;
    if (document.querySelector("#preview .error")?.textContent === text) document.querySelector("#preview .error").remove();
    const input = document.getElementById(field);
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
