// Keeps runs and operations on a page current. What a message does not carry is read from the page's own address.
"use strict";
(() => {
  const $ = (selector, from = document) => from.querySelector(selector);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const feed = $("#feed");
  const isPaused = () => $("#pause-switch")?.getAttribute("aria-pressed") === "true";
  const redrawnFor = new Map(); // id -> what it was like when the page was read again for it
  let isStale = false; // while the page is paused
  let reading = null;

  function happened({ detail }) {
    const work = JSON.parse(detail.data);
    if (isPaused()) { isStale = true; return; }
    const places = all(`[data-work="${CSS.escape(work.id)}"]`);
    if (!places.length && $("[data-works]")?.dataset.works !== work.kind) return;
    const isOther = places.some((place) => place.dataset.drawn !== work.drawn);
    if ((isOther || !places.length) && redrawnFor.get(work.id) !== work.drawn) {
      redrawnFor.set(work.id, work.drawn);
      if (isOther && /^(succeeded|done|failed|cancelled)\b/.test(work.drawn))
        $("#announce").textContent = `The ${work.kind} ${work.id} has ended: ${work.drawn.split(" ")[0]}`;
      return redraw();
    }
    for (const place of places) show(place, work);
    readLog(work.id);
  }

  function show(place, { share, words }) {
    const bar = $("[role=progressbar]", place), text = $("[data-words]", place);
    if (text) text.textContent = words;
    if (!bar || share === null) return;
    $(".part", bar).setAttribute("width", share + "%");
    bar.setAttribute("aria-valuenow", Math.round(share));
    if (words) bar.setAttribute("aria-valuetext", words);
  }

  // one at a time; what happens meanwhile is read by the next one
  async function redraw() {
    if (reading) { await reading; }
    reading = read();
    await reading;
    reading = null;
  }

  async function read() {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const region of all("[data-region]")) {
      const fresh = page.getElementById(region.id);
      if (fresh) replace(region, fresh);
    }
    showCopies();
    const log = $("[data-log]");
    if (log) readLog(log.dataset.run);
  }

  // keeps the focus, and what somebody is typing
  function replace(region, fresh) {
    const active = document.activeElement;
    const name = region.contains(active) && ["name", "href"].find((one) => active.hasAttribute(one));
    const focused = name && `${active.localName}[${name}="${CSS.escape(active.getAttribute(name))}"]`;
    for (const field of all("input[name]:not([type=hidden])", region)) {
      const twin = $(`input[name="${CSS.escape(field.name)}"]`, fresh);
      if (twin) twin.value = field.value;
    }
    region.replaceWith(fresh);
    if (focused) $(focused, fresh)?.focus();
  }

  async function readLog(id) {
    const log = $("[data-log]");
    if (!log || log.dataset.run !== id || log.dataset.reading) return;
    log.dataset.reading = "yes";
    const answer = await fetch(`${log.dataset.log}?after=${log.dataset.next}`);
    delete log.dataset.reading;
    if (!answer.ok) return;
    const part = await answer.json();
    const isAtEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 4;
    log.append(part.text);
    log.dataset.next = part.next;
    if (isAtEnd) log.scrollTop = log.scrollHeight;
  }

  function showCopies() {
    if (navigator.clipboard) for (const button of all("[data-copy]")) button.hidden = false;
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy]");
    if (button) navigator.clipboard.writeText($("pre", button.closest(".call")).textContent);
  });
  feed?.addEventListener("run", happened);
  feed?.addEventListener("operation", happened);
  $("#pause-switch")?.addEventListener("click", () => {
    if (isPaused() || !isStale) return;
    isStale = false;
    redraw();
  });
  showCopies();
  const log = $("[data-log]");
  if (log) log.scrollTop = log.scrollHeight;
})();
