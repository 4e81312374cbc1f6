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
    const before = boxesBefore(detail), moved = [];
    for (const [stream, bead] of Object.entries(detail)) placeBead(stream, bead, moved);
    for (const move of moved) move.before = before.get(move.bead);
    if (moved.length) showMoves(moved, before);
    countSteps();
  });

  const rowOf = (member) => $(`[data-member="${CSS.escape(member)}"]`, map);

  // where the beads stand in every row that gives or gets one, before any of them moves
  function boxesBefore(readings) {
    const rows = new Set();
    for (const [stream, [member]] of Object.entries(readings)) {
      const row = beadOf(stream)?.closest("[data-member]");
      if (row && member !== null && row.dataset.member !== member) rows.add(row).add(rowOf(member));
    }
    rows.delete(null);
    return new Map([...rows].flatMap((row) => all(".bead", row)).map((bead) => [bead, bead.getBoundingClientRect()]));
  }

  function placeBead(stream, [member, step, status, isMoving, isPinned, text, words], moved) {
    const bead = beadOf(stream);
    if (!bead) return;
    const kept = ["chosen", "arrived"].map((name) => (bead.classList.contains(name) ? " " + name : "")).join("");
    bead.className = `bead ${kind}${step < 0 ? "x" : step}${isMoving ? " moving" : ""}${isPinned ? " pinned" : ""}${kept}`;
    bead.setAttribute("aria-label", words);
    setText($("span", bead), text);
    $(".i", bead)?.remove();
    if (status && status !== "OK") bead.prepend(icon(status));
    document.getElementById("w" + stream)?.classList.toggle("look", status !== "OK");
    if (map.dataset.map === "order") return changeOwner(bead, stream, member);
    clearTimeout(losing.get(stream));
    const row = bead.closest("[data-member]");
    if (row.dataset.member === (member ?? "")) return;
    // between two owners a stream has none for a moment: that is no loss yet
    if (member === null) losing.set(stream, setTimeout(drawAnew, LOST_MS));
    if (member === null) return bead.classList.add("moving");
    const target = rowOf(member);
    if (!target) return drawAnew();
    if (map.dataset.map === "wires") $(`[data-w="${stream}"]`, target).append(bead);
    else insertByNumber(bead, target);
    moved.push({ stream, bead, donor: row.dataset.member });
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

  // ---- moves: a bead slides, its neighbours close up; of many at once each donor gets one tag ----
  const MOST_SLIDES = 12;
  const SHOWN_MS = 4000, FADE_MS = 400;
  const MOVE = { duration: map.dataset.map === "pushed" ? 520 : 420, easing: "cubic-bezier(.3,0,.15,1)" };
  const calm = matchMedia("(prefers-reduced-motion: reduce)");

  function showMoves(moved, before) {
    toSay.push(...moved);
    announce("moves", () => inWords(toSay.splice(0)));
    const movers = new Set(moved.map((move) => move.bead));
    if (map.dataset.map === "pushed" && !calm.matches)
      for (const [bead, stood] of before) if (!movers.has(bead)) glide(bead, stood);
    if (moved.length > MOST_SLIDES) return showCrowd(moved);
    for (const move of moved) { ring(move); slide(move); }
  }

  // where it stands, or will when it has arrived
  function placeOf(bead) {
    const { left, top, width, height } = bead.getBoundingClientRect();
    const { e, f } = new DOMMatrixReadOnly(getComputedStyle(bead).transform);
    return { left: left - e, top: top - f, width, height };
  }

  function glide(bead, before) {
    const after = placeOf(bead);
    const dx = before.left - after.left, dy = before.top - after.top;
    if (dx || dy) bead.animate([{ transform: `translate(${dx}px, ${dy}px)` }, { transform: "none" }], MOVE);
    return after;
  }

  function slide({ bead, before }) {
    show("ghost", before);
    if (calm.matches) return;
    const after = glide(bead, before);
    const dx = after.left - before.left, dy = after.top - before.top;
    const turn = `rotate(${Math.atan2(dy, dx)}rad)`;
    const trail = show("trail", { left: before.left + before.width / 2, top: before.top + before.height / 2, width: Math.hypot(dx, dy), height: 2 });
    trail.style.transform = turn;
    trail.animate([{ transform: `${turn} scaleX(0)` }, { transform: turn }], MOVE);
  }

  const crowds = new Map(); // stream -> the tag of its donor
  function showCrowd(moved) {
    const tags = new Map();
    for (const { stream, bead, donor, before } of moved) {
      if (!calm.matches) bead.animate([{ opacity: 0 }, { opacity: 1 }], MOVE);
      outline(bead);
      if (!tags.has(donor)) tags.set(donor, { flag: show("flag", before), streams: [] });
      const tag = tags.get(donor);
      tag.streams.push(stream);
      crowds.set(Number(stream), tag);
      setTimeout(() => crowds.delete(Number(stream)), SHOWN_MS);
    }
    tags.forEach(writeTag);
  }

  function writeTag({ flag, streams }) {
    const longest = longestOf(streams);
    const many = `${streams.length} ${streams.length === 1 ? "stream" : "streams"}`;
    flag.textContent = longest === null ? many : `${many}, up to ${spanText(longest)}`;
    keepInside(flag);
  }

  function outline(bead) {
    bead.classList.add("arrived");
    setTimeout(() => bead.classList.remove("arrived"), SHOWN_MS + FADE_MS);
  }

  function ring({ stream, bead }) {
    outline(bead);
    const pause = pauses.get(Number(stream));
    if (pause === undefined) return;
    const { left, top, width } = placeOf(bead);
    const flag = show("flag", { left: left + width + 6, top: top + 6 });
    flag.textContent = spanText(pause);
    keepInside(flag);
  }

  // draws something over the map for a while; it scrolls with the map
  const box = map.parentElement;
  function show(name, { left, top, width, height }) {
    const made = document.createElement("span"), at = box.getBoundingClientRect();
    made.className = name;
    made.style.left = left - at.left + box.scrollLeft + "px";
    made.style.top = top - at.top + "px";
    if (name !== "flag") { made.style.width = width + "px"; made.style.height = height + "px"; }
    box.append(made);
    setTimeout(() => made.remove(), SHOWN_MS + FADE_MS);
    return made;
  }
  addEventListener("resize", () => all(".ghost, .trail, .flag", box).forEach((one) => one.remove()));

  function keepInside(flag) {
    const over = parseFloat(flag.style.left) + flag.offsetWidth - map.offsetWidth;
    flag.style.left = Math.max(0, parseFloat(flag.style.left) - Math.max(0, over)) + "px";
  }

  const spanText = (ms) => (ms < 1000 ? Math.round(ms) + " ms" : (ms / 1000).toFixed(2) + " s");

  function longestOf(streams) {
    const known = streams.map((stream) => pauses.get(Number(stream))).filter((ms) => ms !== undefined);
    return known.length ? Math.max(...known) : null;
  }

  const toSay = [];
  function inWords(moved) {
    const numbers = [...new Set(moved.map((move) => move.stream))];
    const longest = longestOf(numbers);
    const who = numbers.length > 5 ? `${numbers.length} streams` : numbers.length > 1
      ? `Streams ${numbers.slice(0, -1).join(", ")} and ${numbers.at(-1)}` : `Stream ${numbers[0]}`;
    return `${who} moved${longest === null ? "" : `, longest pause ${spanText(longest)}`}`;
  }

  feed?.addEventListener("event", ({ detail }) => {
    const event = JSON.parse(detail.data);
    if (!["handover", "takeover"].includes(event.kind) || event.pause_ms === undefined) return;
    pauses.set(event.stream, event.pause_ms);
    setTimeout(() => pauses.delete(event.stream), 10000);
    const bead = beadOf(event.stream);
    // the recipient reports the pause after its first record, so the bead has often arrived before
    if (crowds.has(event.stream)) writeTag(crowds.get(event.stream));
    else if (bead && ownerOf(bead) === (event.to || event.member)) ring({ stream: event.stream, bead });
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
    const stream = streamOf(bead);
    const { state, lines } = inRow(stream) ?? inLabel(bead);
    const list = element("dl", "");
    for (const [name, text] of [["Owner", ownerOf(bead) || "nobody"], ...lines])
      if (text) list.append(element("dt", name), element("dd", text));
    const heading = element("h3", `Stream ${stream} `);
    heading.append(element("small", state.join(", ")));
    tip.replaceChildren(heading, list);
    tip.hidden = false;
    const box = bead.getBoundingClientRect();
    const left = Math.max(8, Math.min(box.left, innerWidth - tip.offsetWidth - 8));
    tip.style.left = left + scrollX + "px";
    tip.style.top = box.bottom + 8 + scrollY + "px";
  }

  // what the table of the page says of the stream
  function inRow(stream) {
    const row = $(`#streams tr[data-stream="${stream}"]`);
    if (!row) return null;
    const [, , status, state, ...texts] = [...row.children].map((cell) => cell.textContent.trim());
    const names = all("#streams thead th").slice(4).map((head) => head.textContent);
    const isPinned = beadOf(stream).classList.contains("pinned");
    return { state: [status, state, ...(isPinned ? ["pinned"] : [])], lines: names.map((name, n) => [name, texts[n]]) };
  }

  // what the bead says of itself: a bead that is ordinary says less
  const MEASURES = [[/^lag (.*)/, "Lag"], [/(.*) fragments\/s$/, "Fragments/s"], [/(.*) open sessions$/, "Open sessions"], [/(.*) of state$/, "State bytes"]];
  function inLabel(bead) {
    const state = [], lines = [];
    for (const text of bead.getAttribute("aria-label").split(/: |, /).slice(1)) {
      const [pattern, name] = MEASURES.find(([pattern]) => pattern.test(text)) ?? [];
      if (name) lines.push([name, pattern.exec(text)[1]]);
      else if (!text.startsWith("owner ") && text !== "no owner") state.push(text);
    }
    return { state: state.length ? state : ["OK"], lines };
  }

  function element(name, text) {
    const made = document.createElement(name);
    made.textContent = text;
    return made;
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
      ArrowDown: () => beside(bead, row, 1), ArrowUp: () => beside(bead, row, -1),
    }[key]?.();
  }
  function beside(bead, row, step) {
    const rows = all("[data-member]", map), x = bead.getBoundingClientRect().left;
    const away = (other) => Math.abs(other.getBoundingClientRect().left - x);
    for (let n = rows.indexOf(row) + step; row && rows[n]; n += step) {
      const beads = all(".bead", rows[n]);
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
