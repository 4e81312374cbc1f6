// Keeps a page of the console current, and lets it be used from the keyboard. Pages work without it.
"use strict";
(() => {
  const $ = (selector, from = document) => from.querySelector(selector);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const stored = (name) => localStorage.getItem("baton." + name);
  const store = (name, value) => localStorage.setItem("baton." + name, value);
  const calm = matchMedia("(prefers-reduced-motion: reduce)");

  // ---- live ----
  const STALE_MS = 5000;
  const feed = $("#feed");
  let heardAt = performance.now();
  let staleMs = Number($("#live")?.dataset.staleMs ?? 0);
  let isPaused = false;
  let waiting = null; // the newest reading while the page is paused
  let changes = 0;
  const pauses = new Map(); // stream -> ms, of the handovers told just now

  const age = () => staleMs + performance.now() - heardAt;

  function icon(name) {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("class", "i i-" + name);
    svg.setAttribute("viewBox", "0 0 16 16");
    svg.setAttribute("aria-hidden", "true");
    const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
    use.setAttribute("href", "#" + name);
    svg.append(use);
    return svg;
  }

  function setText(element, text) {
    if (element && element.textContent !== text) element.textContent = text;
  }

  function showAge() {
    const seconds = age() / 1000;
    const text = seconds < 10 ? seconds.toFixed(1) + " s" : Math.round(seconds) + " s";
    const isStale = !isPaused && age() > STALE_MS;
    const name = isPaused ? "Paused" : isStale ? "Stale" : "Live";
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
    strip.hidden = !isStale && !(isPaused && changes);
    if (isStale) setText(strip, `No word from control for ${Math.round(seconds)} s. You see what it said then.`);
    else if (isPaused) setText(strip, `Paused. ${changes} ${changes === 1 ? "change waits" : "changes wait"}.`);
  }

  function applyReading(reading) {
    if (feed.dataset.shape && reading.shape !== feed.dataset.shape) return redraw();
    for (const [name, text] of Object.entries(reading.facts ?? {})) {
      for (const element of all(`[data-fact="${name}"]`)) setText(element, text);
      for (const element of all(`[data-drawn-for="${name}"]`))
        if (element.dataset.drawn !== text) drawAgain(element, text);
    }
    for (const [member, cells] of Object.entries(reading.members ?? {})) {
      const row = $(`[data-member="${CSS.escape(member)}"]`);
      if (row) for (const cell of all("[data-cell]", row)) setText(cell, cells[cell.dataset.cell]);
    }
    const moved = [];
    for (const [stream, bead] of Object.entries(reading.beads ?? {})) placeBead(stream, bead, moved);
    for (const [stream, cells] of Object.entries(reading.rows ?? {})) {
      const row = $(`[data-stream="${stream}"]:is(tr, dl)`);
      if (row) for (const cell of all("[data-c]", row)) setCell(cell, cells[cell.dataset.c]);
    }
    if (moved.length) showMoves(moved);
  }

  function setCell(cell, text) {
    if (!("status" in cell.dataset)) return setText(cell, text);
    if (cell.dataset.status === text) return;
    cell.dataset.status = text;
    const word = document.createElement("span");
    word.className = text === "OK" ? "quiet" : text === "WARN" ? "warn" : "bad";
    word.append(...(text === "OK" ? ["OK"] : [icon(text), " " + text]));
    cell.replaceChildren(word);
  }

  // a part of the page that is more than texts: read anew from the page's own address
  async function drawAgain(element, text) {
    element.dataset.drawn = text;
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.getElementById(element.id);
    if (fresh) element.replaceWith(fresh);
  }

  function redraw() {
    if (feed.dataset.redrawing) return;
    feed.dataset.redrawing = "yes";
    location.reload();
  }

  // ---- the map ----
  const LOST_MS = 2000;
  const losing = new Map(); // stream -> timer that shows it in the row of nobody
  function placeBead(stream, [member, step, status, isMoving, isPinned, text, words], moved) {
    const bead = document.getElementById("b" + stream);
    if (!bead) return;
    const map = bead.closest("[data-map]");
    const kind = map.dataset.colour === "lag" ? "l" : "a";
    const chosen = bead.classList.contains("chosen") ? " chosen" : "";
    bead.className = `bead ${kind}${step < 0 ? "x" : step}${isMoving ? " moving" : ""}${isPinned ? " pinned" : ""}${chosen}`;
    bead.setAttribute("aria-label", words);
    setText($("span", bead), text);
    $(".i", bead)?.remove();
    if (status !== "OK") bead.prepend(icon(status));
    if (map.dataset.map === "order") return changeOwner(bead, stream, member);
    clearTimeout(losing.get(stream));
    const row = bead.closest("[data-member]");
    if (row.dataset.member === (member ?? "")) return;
    // between two owners a stream has none for a moment: that is no loss yet
    if (member === null) losing.set(stream, setTimeout(redraw, LOST_MS));
    if (member === null) return bead.classList.add("moving");
    const target = $(`[data-member="${CSS.escape(member)}"]`, map);
    if (!target) return redraw();
    const before = bead.getBoundingClientRect();
    if (map.dataset.map === "wires") $(`[data-w="${stream}"]`, target).append(bead);
    else insertByNumber(bead, target);
    moved.push({ stream, bead, before, from: row.dataset.member, to: member });
  }

  const ownerOf = (bead) => bead.dataset.owner ?? bead.closest("[data-member]").dataset.member;

  // where streams stand by number, none changes its place
  function changeOwner(bead, stream, member) {
    if (bead.dataset.owner === (member ?? "")) return;
    bead.dataset.owner = member ?? "";
    if (member) ring({ stream, bead });
  }

  function insertByNumber(bead, row) {
    const cell = bead.parentElement;
    const beads = $(".beads", row);
    $(".quiet", beads)?.remove();
    const number = Number(bead.id.slice(1));
    const next = all(".bead", beads).find((other) => Number(other.id.slice(1)) > number);
    beads.insertBefore(cell, next ? next.parentElement : null);
  }

  function showMoves(moved) {
    announce(moved);
    if (moved.length > 12 || calm.matches) {
      for (const move of moved) ring(move);
      return;
    }
    for (const move of moved) {
      const after = move.bead.getBoundingClientRect();
      const dx = move.before.left - after.left, dy = move.before.top - after.top;
      const ghost = document.createElement("span");
      ghost.className = "ghost";
      place(ghost, move.before);
      $("#main").append(ghost);
      setTimeout(() => ghost.remove(), 4000);
      move.bead.animate([{ transform: `translate(${dx}px, ${dy}px)` }, { transform: "none" }],
        { duration: 420, easing: "cubic-bezier(.3,0,.15,1)" });
      ring(move);
    }
  }

  function ring({ stream, bead }) {
    bead.classList.add("arrived");
    setTimeout(() => bead.classList.remove("arrived"), 4000);
    const pause = pauses.get(Number(stream));
    if (pause === undefined) return;
    const flag = document.createElement("span");
    flag.className = "flag";
    flag.textContent = spanText(pause);
    const box = bead.getBoundingClientRect();
    $("#main").append(flag);
    const left = Math.min(box.right + 6, document.documentElement.clientWidth - flag.offsetWidth - 4);
    place(flag, { left, top: box.top + 6 });
    setTimeout(() => flag.remove(), 4000);
  }

  function place(element, { left, top, width, height }) {
    element.style.left = left + scrollX + "px";
    element.style.top = top + scrollY + "px";
    if (width) { element.style.width = width + "px"; element.style.height = height + "px"; }
  }

  const spanText = (ms) => (ms < 1000 ? Math.round(ms) + " ms" : (ms / 1000).toFixed(2) + " s");

  function movesInWords(moved) {
    const numbers = moved.map((move) => move.stream);
    const known = numbers.map((stream) => pauses.get(Number(stream))).filter((ms) => ms !== undefined);
    const who = numbers.length > 5 ? `${numbers.length} streams` : numbers.length > 1
      ? `Streams ${numbers.slice(0, -1).join(", ")} and ${numbers.at(-1)}` : `Stream ${numbers[0]}`;
    return `${who} moved${known.length ? `, longest pause ${spanText(Math.max(...known))}` : ""}`;
  }

  // at most a message in five seconds; what moves meanwhile is told together
  const toTell = [];
  let announcedAt = -Infinity;
  let telling = 0;
  function announce(moved) {
    toTell.push(...moved);
    telling ||= setTimeout(tell, Math.max(0, announcedAt + 5000 - performance.now()));
  }
  function tell() {
    announcedAt = performance.now();
    telling = 0;
    $("#announce").textContent = movesInWords(toTell.splice(0));
  }

  // ---- messages ----
  function heard(detail) {
    const reading = JSON.parse(detail.data);
    heardAt = performance.now();
    staleMs = reading.stale_ms;
    if (!isPaused) return applyReading(reading);
    waiting = waiting && !reading.whole ? merged(waiting, reading) : reading;
    changes = Object.keys(waiting.beads ?? {}).length;
  }

  function merged(older, newer) {
    const both = { ...older, ...newer };
    for (const part of ["facts", "members", "beads", "rows"]) both[part] = { ...older[part], ...newer[part] };
    return both;
  }

  function happened(detail) {
    const event = JSON.parse(detail.data);
    if (event.kind !== "handover" || event.pause_ms === undefined) return;
    pauses.set(event.stream, event.pause_ms);
    setTimeout(() => pauses.delete(event.stream), 10000);
    const bead = document.getElementById("b" + event.stream);
    // the recipient tells the pause after its first record, so the bead has often arrived before
    if (bead && ownerOf(bead) === event.to) ring({ stream: event.stream, bead });
  }

  if (feed) {
    feed.addEventListener("reading", (event) => heard(event.detail));
    feed.addEventListener("event", (event) => happened(event.detail));
    $("#pause-switch").hidden = false;
    $("#pause-switch").addEventListener("click", togglePause);
    setInterval(showAge, 200);
  }

  function togglePause() {
    isPaused = !isPaused;
    $("#pause-switch").setAttribute("aria-pressed", String(isPaused));
    if (!isPaused && waiting) applyReading(waiting);
    waiting = null;
    changes = 0;
    showAge();
  }

  // ---- the theme ----
  function switchTheme() {
    const root = document.documentElement;
    const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
    store("theme", root.dataset.theme);
  }
  $("#theme-switch")?.addEventListener("click", switchTheme);

  // ---- forms ----
  for (const field of all("[data-submit]")) field.addEventListener("change", () => field.form.requestSubmit());

  // ---- find, and choose a member ----
  function find(text) {
    const beads = all(".bead");
    for (const bead of beads) {
      const isStream = text !== "" && bead.id === "b" + text;
      const isMember = text !== "" && ownerOf(bead) === text;
      bead.classList.toggle("chosen", isStream || isMember);
    }
  }
  const field = $("#find");
  if (field) {
    field.addEventListener("input", () => find(field.value.trim()));
    find(field.value.trim());
  }

  // ---- the tip ----
  const tip = $("#tip");
  let tipFor = null;
  function showTip(bead) {
    tipFor = bead;
    const [title, ...rest] = bead.getAttribute("aria-label").split(/: |, /);
    const heading = document.createElement("h3");
    heading.textContent = title;
    const lines = rest.map((text) => { const p = document.createElement("p"); p.textContent = text; return p; });
    tip.replaceChildren(heading, ...lines);
    tip.hidden = false;
    const box = bead.getBoundingClientRect();
    const left = Math.max(8, Math.min(box.left, innerWidth - tip.offsetWidth - 8));
    place(tip, { left, top: box.bottom + 8 });
  }
  function hideTip() { tip.hidden = true; tipFor = null; }
  document.addEventListener("pointerover", (event) => {
    const bead = event.target.closest?.(".bead");
    if (bead) showTip(bead); else if (tipFor && !tipFor.matches(":focus")) hideTip();
  });
  document.addEventListener("focusin", (event) => event.target.matches(".bead") ? showTip(event.target) : hideTip());

  // ---- the keyboard ----
  const map = $("[data-map]");
  const first = map && $(".bead", map);
  if (first) first.tabIndex = 0;

  function moveIn(map, key) {
    const beads = all(".bead", map).sort((a, b) => Number(a.id.slice(1)) - Number(b.id.slice(1)));
    const now = beads.indexOf(document.activeElement);
    const row = document.activeElement.closest("[data-member]");
    const target = {
      ArrowRight: () => beads[now + 1], ArrowLeft: () => beads[now - 1],
      Home: () => beads[0], End: () => beads.at(-1),
      ArrowDown: () => beside(row, "nextElementSibling"), ArrowUp: () => beside(row, "previousElementSibling"),
    }[key]?.();
    if (!target) return;
    document.activeElement.tabIndex = -1;
    target.tabIndex = 0;
    target.focus();
  }
  function beside(row, way) {
    const x = document.activeElement.getBoundingClientRect().left;
    for (let next = row?.[way]; next; next = next[way]) {
      const beads = all(".bead", next);
      if (beads.length)
        return beads.sort((a, b) => Math.abs(a.getBoundingClientRect().left - x) - Math.abs(b.getBoundingClientRect().left - x))[0];
    }
  }

  function moveRow(by) {
    const rows = all("table.wide tbody tr:not(.cause)");
    if (!rows.length) return;
    const now = rows.findIndex((row) => row.classList.contains("chosen"));
    rows[now]?.classList.remove("chosen");
    const row = rows[Math.max(0, Math.min(rows.length - 1, now + by))];
    row.classList.add("chosen");
    row.scrollIntoView({ block: "nearest" });
    $("a", row)?.focus();
  }

  function goToStream(by) {
    const stream = $("#stream");
    if (!stream) return;
    const number = Number(stream.dataset.stream) + by;
    if (number >= 0 && number < Number(stream.dataset.streams))
      location.assign(location.pathname.replace(/\d+$/, number) + location.search);
  }

  // what the focus is on comes first, then what the page is about
  function act(key) {
    const at = document.activeElement;
    const stream = /\/streams\/(\d+)\?/;
    if (key === "m" && stream.test(at.href))
      return location.assign(at.href.replace(stream, "/actions/move?stream=$1&"));
    ($(`[data-key=${key}]`, at.closest("[data-member], tr") ?? undefined) ?? $(`.head [data-key=${key}]`))?.click();
  }

  const keys = {
    m: () => act("m"), d: () => act("d"),
    "/": () => (field ?? $("input[type=search]"))?.focus(),
    p: () => feed && togglePause(), t: switchTheme, "?": () => $("#keys").showModal(),
    j: () => moveRow(1), k: () => moveRow(-1), "[": () => goToStream(-1), "]": () => goToStream(1),
  };
  const off = $("#keys-off");
  off.checked = stored("keys") === "off";
  off.addEventListener("change", () => store("keys", off.checked ? "off" : "on"));
  $("#keys-switch").addEventListener("click", () => $("#keys").showModal());
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return hideTip();
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches?.(".bead") && /^(Arrow|Home|End)/.test(event.key)) {
      event.preventDefault();
      return moveIn(map, event.key);
    }
    if (off.checked || event.target.matches?.("input, select, textarea") || $("dialog[open]")) return;
    const view = all(".bar nav a")[Number(event.key) - 1];
    if (view) return view.click();
    if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });
})();
