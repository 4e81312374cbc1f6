// The map of streams and members: its beads move as readings say, and are found, filtered and walked through.
"use strict";
(() => {
  const { $, all, announce, feed, icon, setText } = page;
  const map = $("[data-map]");
  if (!map) return;

  const beadOf = (stream) => document.getElementById("b" + stream);
  const streamOf = (bead) => Number(bead.id.slice(1));
  const ownerOf = (bead) => bead.dataset.owner ?? bead.closest("[data-member]").dataset.member;
  const kind = map.dataset.colour === "lag" ? "l" : "a";
  // the page leaves out what its links say already
  for (const bead of all(".bead", map)) {
    bead.id = "b" + /\/streams\/(\d+)/.exec(bead.href)[1];
    bead.tabIndex = -1;
  }

  // ---- readings ----
  const LOST_MS = 2000;
  const losing = new Map(); // stream -> timer that shows it in the row of nobody
  const pauses = new Map(); // stream -> ms, of the newest handovers

  document.addEventListener("baton:beads", ({ detail }) => {
    const moved = [];
    for (const [stream, bead] of Object.entries(detail)) placeBead(stream, bead, moved);
    if (moved.length) showMoves(moved);
    countSteps();
  });

  function placeBead(stream, [member, step, status, isMoving, isPinned, text, words], moved) {
    const bead = beadOf(stream);
    if (!bead) return;
    const chosen = bead.classList.contains("chosen") ? " chosen" : "";
    bead.className = `bead ${kind}${step < 0 ? "x" : step}${isMoving ? " moving" : ""}${isPinned ? " pinned" : ""}${chosen}`;
    bead.setAttribute("aria-label", words);
    setText($("span", bead), text);
    $(".i", bead)?.remove();
    if (status !== "OK") bead.prepend(icon(status));
    document.getElementById("w" + stream)?.classList.toggle("look", status !== "OK");
    if (map.dataset.map === "order") return changeOwner(bead, stream, member);
    clearTimeout(losing.get(stream));
    const row = bead.closest("[data-member]");
    if (row.dataset.member === (member ?? "")) return;
    // between two owners a stream has none for a moment: that is no loss yet
    if (member === null) losing.set(stream, setTimeout(drawAnew, LOST_MS));
    if (member === null) return bead.classList.add("moving");
    const target = $(`[data-member="${CSS.escape(member)}"]`, map);
    if (!target) return drawAnew();
    const before = bead.getBoundingClientRect();
    if (map.dataset.map === "wires") $(`[data-w="${stream}"]`, target).append(bead);
    else insertByNumber(bead, target);
    moved.push({ stream, bead, before });
  }

  const drawAnew = () => document.dispatchEvent(new Event("baton:lost"));

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
    const next = all(".bead", beads).find((other) => streamOf(other) > streamOf(bead));
    beads.insertBefore(cell, next ? next.parentElement : null);
  }

  // ---- moves ----
  const MOST_SLIDES = 12;
  const SHOWN_MS = 4000;
  const calm = matchMedia("(prefers-reduced-motion: reduce)");

  function showMoves(moved) {
    toSay.push(...moved);
    announce("moves", () => inWords(toSay.splice(0)));
    const slides = moved.length <= MOST_SLIDES && !calm.matches;
    for (const move of moved) {
      if (slides) slide(move);
      ring(move);
    }
  }

  function slide({ bead, before }) {
    const after = bead.getBoundingClientRect();
    const dx = before.left - after.left, dy = before.top - after.top;
    const ghost = document.createElement("span");
    ghost.className = "ghost";
    place(ghost, before);
    $("#main").append(ghost);
    setTimeout(() => ghost.remove(), SHOWN_MS);
    bead.animate([{ transform: `translate(${dx}px, ${dy}px)` }, { transform: "none" }],
      { duration: 420, easing: "cubic-bezier(.3,0,.15,1)" });
  }

  function ring({ stream, bead }) {
    bead.classList.add("arrived");
    setTimeout(() => bead.classList.remove("arrived"), SHOWN_MS);
    const pause = pauses.get(Number(stream));
    if (pause === undefined) return;
    const flag = document.createElement("span");
    flag.className = "flag";
    flag.textContent = spanText(pause);
    const box = bead.getBoundingClientRect();
    $("#main").append(flag);
    const left = Math.min(box.right + 6, document.documentElement.clientWidth - flag.offsetWidth - 4);
    place(flag, { left, top: box.top + 6 });
    setTimeout(() => flag.remove(), SHOWN_MS);
  }

  function place(element, { left, top, width, height }) {
    element.style.left = left + scrollX + "px";
    element.style.top = top + scrollY + "px";
    if (width) { element.style.width = width + "px"; element.style.height = height + "px"; }
  }

  const spanText = (ms) => (ms < 1000 ? Math.round(ms) + " ms" : (ms / 1000).toFixed(2) + " s");

  const toSay = [];
  function inWords(moved) {
    const numbers = [...new Set(moved.map((move) => move.stream))];
    const known = numbers.map((stream) => pauses.get(Number(stream))).filter((ms) => ms !== undefined);
    const who = numbers.length > 5 ? `${numbers.length} streams` : numbers.length > 1
      ? `Streams ${numbers.slice(0, -1).join(", ")} and ${numbers.at(-1)}` : `Stream ${numbers[0]}`;
    return `${who} moved${known.length ? `, longest pause ${spanText(Math.max(...known))}` : ""}`;
  }

  feed?.addEventListener("event", ({ detail }) => {
    const event = JSON.parse(detail.data);
    if (event.kind !== "handover" || event.pause_ms === undefined) return;
    pauses.set(event.stream, event.pause_ms);
    setTimeout(() => pauses.delete(event.stream), 10000);
    const bead = beadOf(event.stream);
    // the recipient reports the pause after its first record, so the bead has often arrived before
    if (bead && ownerOf(bead) === event.to) ring({ stream: event.stream, bead });
  });

  // ---- find, and the legend ----
  const field = $("#find");
  function find(text) {
    for (const bead of all(".bead", map))
      bead.classList.toggle("chosen", text !== "" && (bead.id === "b" + text || ownerOf(bead) === text));
  }
  if (field) {
    field.addEventListener("input", () => find(field.value.trim()));
    find(field.value.trim());
  }

  const steps = all(".legend [data-step]");
  function countSteps() {
    for (const step of steps)
      setText($("b", step), String(all(`.${kind}${step.dataset.step}`, map).length || ""));
  }
  for (const step of steps) step.addEventListener("click", () => {
    const isOff = step.getAttribute("aria-pressed") === "true";
    for (const other of steps) other.setAttribute("aria-pressed", String(other === step && !isOff));
    if (isOff) delete map.dataset.only; else map.dataset.only = step.dataset.step;
  });

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

  // ---- the keyboard: one tab stop, then arrows ----
  const first = $(".bead", map);
  if (first) first.tabIndex = 0;

  function targetOf(bead, key) {
    const beads = all(".bead", map).sort((a, b) => streamOf(a) - streamOf(b));
    const row = bead.closest("[data-member]");
    return {
      ArrowRight: () => beads[beads.indexOf(bead) + 1], ArrowLeft: () => beads[beads.indexOf(bead) - 1],
      Home: () => beads[0], End: () => beads.at(-1),
      ArrowDown: () => beside(bead, row, "nextElementSibling"), ArrowUp: () => beside(bead, row, "previousElementSibling"),
    }[key]?.();
  }
  function beside(bead, row, way) {
    const x = bead.getBoundingClientRect().left;
    const away = (other) => Math.abs(other.getBoundingClientRect().left - x);
    for (let next = row?.[way]; next; next = next[way]) {
      const beads = all(".bead", next);
      if (beads.length) return beads.reduce((near, other) => (away(other) < away(near) ? other : near));
    }
  }
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return hideTip();
    const bead = document.activeElement;
    if (event.ctrlKey || event.metaKey || event.altKey || !bead.matches(".bead") || !/^(Arrow|Home|End)/.test(event.key)) return;
    event.preventDefault();
    const target = targetOf(bead, event.key);
    if (!target) return;
    for (const other of all(".bead[tabindex='0']", map)) other.tabIndex = -1;
    target.tabIndex = 0;
    target.focus();
  });
})();
