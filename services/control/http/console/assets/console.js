// Keeps a page of the console current: its age, its texts, what waits while it is paused. Pages work without it.
"use strict";
(() => {
  const { $, all, feed, icon, isPaused, readAgain, setText } = page;
  const staleAfterMs = Number($("#live").dataset.staleAfterMs);
  let heardAt = performance.now();
  let staleMs = Number($("#live")?.dataset.staleMs ?? 0);
  let waiting = null; // the newest reading while the page is paused
  let changes = 0;

  // ---- the age of what is shown ----
  const age = () => staleMs + performance.now() - heardAt;

  function showAge() {
    const seconds = age() / 1000;
    const text = seconds < 10 ? seconds.toFixed(1) + " s" : Math.round(seconds) + " s";
    const isStale = !isPaused() && age() > staleAfterMs;
    const name = isPaused() ? "Paused" : isStale ? "Stale" : "Live";
    const state = $("[data-live=state]");
    if (state && state.dataset.name !== name) {
      state.dataset.name = name;
      state.replaceChildren(icon({ Paused: "pause", Stale: "WARN", Live: "dot" }[name]), " " + name);
      $("#live").classList.toggle("stale", isStale);
      document.body.classList.toggle("stale-page", isStale);
    }
    setText($("[data-live=age]"), text);
    setText($("[data-live=footer]"), text);
    const strip = $("#strip");
    strip.hidden = !isStale && !(isPaused() && changes);
    const words = $("span", strip);
    $("button", strip).hidden = !isPaused();
    const silentMs = performance.now() - heardAt;
    if (isStale) setText(words, silentMs < Math.min(staleMs, staleAfterMs)
      ? `Control cannot read everything: what you see may be ${Math.round(seconds)} s old. The overview says what is of when.`
      : `No word from control for ${Math.round(seconds)} s. You see what it said then. Trying again.`);
    else if (isPaused()) setText(words, `Paused. ${changes} ${changes === 1 ? "change waits" : "changes wait"}.`);
  }

  // ---- readings ----
  let seen = null; // the id of the last event, where a new connection goes on
  function heard(detail) {
    const reading = JSON.parse(detail.data);
    seen = detail.id || seen;
    heardAt = performance.now();
    staleMs = reading.stale_ms;
    if (!isPaused()) return apply(reading);
    waiting = waiting && !reading.whole ? merged(waiting, reading) : reading;
    changes = Object.keys(waiting.beads ?? {}).length;
  }

  function merged(older, newer) {
    const both = { ...older, ...newer };
    for (const part of ["facts", "members", "beads", "rows", "queues"]) both[part] = { ...older[part], ...newer[part] };
    return both;
  }

  function apply(reading) {
    if (feed.dataset.shape && reading.shape !== feed.dataset.shape) return drawAnew();
    for (const [name, text] of Object.entries(reading.facts ?? {})) {
      for (const element of all(`[data-fact="${name}"]`)) setText(element, text);
      if (all(`[data-drawn-for="${name}"]`).some((region) => region.dataset.drawn !== text)) readAgain();
    }
    for (const [member, cells] of Object.entries(reading.members ?? {})) {
      const row = $(`[data-member="${CSS.escape(member)}"]`);
      if (!row) continue;
      for (const cell of all("[data-cell]", row)) setText(cell, cells[cell.dataset.cell]);
      for (const bar of all("[data-bar]", row)) bar.setAttribute("width", (cells[bar.dataset.bar] || 0) + "%");
    }
    for (const [stream, cells] of Object.entries(reading.rows ?? {})) {
      const row = $(`[data-stream="${stream}"]:is(tr, dl)`);
      if (row) for (const cell of all("[data-c]", row)) setCell(cell, cells[cell.dataset.c]);
      const head = $(`[data-drawn-cells][data-stream="${stream}"]`);
      if (head && head.dataset.drawnCells.split(" ").map((cell) => cells[cell]).join("|") !== head.dataset.drawn) readAgain();
    }
    for (const [queue, cells] of Object.entries(reading.queues ?? {})) {
      const row = $(`[data-queue="${CSS.escape(queue)}"]:is(tr, dl)`);
      if (row) for (const cell of all("[data-c]", row)) setText(cell, cells[cell.dataset.c]);
    }
    document.dispatchEvent(new CustomEvent("baton:beads", { detail: reading.beads ?? {} }));
  }

  function setCell(cell, text) {
    if (!("status" in cell.dataset)) return setText(cell, text);
    if (cell.dataset.status === text) return;
    cell.dataset.status = text;
    const word = document.createElement("span");
    word.className = text === "OK" ? "quiet" : text === "WARN" ? "warn" : "bad";
    word.append(...(text === "OK" ? ["OK"] : text ? [icon(text), " " + text] : []));
    cell.replaceChildren(word);
  }

  // rows never change places by themselves: what has moved since is counted, and shown on demand
  const newer = new Map(); // what moved -> when this page heard of it last: each is reported twice
  function showNewer() {
    for (const button of all("[data-newer]")) {
      button.hidden = !newer.size;
      setText(button, `Show ${newer.size} newer`);
    }
  }
  function moved({ detail }) {
    const event = JSON.parse(detail.data);
    seen = detail.id || seen;
    if (!["claim", "handover", "takeover"].includes(event.kind)) return;
    newer.set(`${event.stream} ${event.epoch}`, performance.now());
    showNewer();
  }
  // what was heard of while the page was being read may be missing in it
  document.addEventListener("baton:read", ({ detail }) => {
    for (const [move, heardAt] of newer) if (heardAt < detail.askedAt) newer.delete(move);
    showNewer();
  });
  document.addEventListener("click", ({ target }) => target.closest("[data-newer]") && readAgain());

  // other streams or members: nothing on the page has its place any more
  function drawAnew() {
    if (feed.dataset.drawingAnew) return;
    feed.dataset.drawingAnew = "yes";
    location.reload();
  }
  document.addEventListener("baton:lost", drawAnew);

  function togglePause() {
    const pausing = !isPaused();
    $("#pause-switch").setAttribute("aria-pressed", String(pausing));
    if (!pausing && waiting) apply(waiting);
    waiting = null;
    changes = 0;
    showAge();
  }

  // htmx connects again only what was connected once
  const RETRY_MS = 5000;
  let isFollowing = false;
  function follow() {
    if (isFollowing || document.hidden) return;
    const place = new URL(feed.getAttribute("hx-sse:connect"), location.href);
    if (seen !== null) place.searchParams.set("after", seen);
    htmx.ajax("GET", place.pathname + place.search, { source: feed, swap: "none" })?.catch?.(() => {});
  }

  if (feed) {
    feed.addEventListener("htmx:sse:before:connection", () => { isFollowing = true; });
    feed.addEventListener("htmx:sse:close", () => { isFollowing = false; });
    setInterval(follow, RETRY_MS);
    feed.addEventListener("reading", (event) => heard(event.detail));
    feed.addEventListener("event", moved);
    feed.addEventListener("gone", readAgain); // control no longer knows what this page has missed
    // the login has expired: the page leads to it
    feed.addEventListener("htmx:sse:error", ({ detail }) => detail.status === 401 && location.reload());
    $("#pause-switch").hidden = false;
    $("#pause-switch").addEventListener("click", togglePause);
    $("#strip button").addEventListener("click", () => $("#pause-switch").click());
    setInterval(showAge, 200);
    // what no message carries
    const every = $("[data-every]")?.dataset.every;
    if (every) setInterval(() => { if (!isPaused() && !document.hidden) readAgain(); }, every * 1000);
  }

  for (const field of all("[data-submit]")) field.addEventListener("change", () => field.form.requestSubmit());
})();
