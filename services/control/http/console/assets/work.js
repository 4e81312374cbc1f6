// Keeps runs and operations on a page current. What a message does not carry is read from the page's own address.
"use strict";
(() => {
  const { $, all, announce, feed, isPaused, readAgain } = page;
  const readFor = new Map(); // id -> what it was like when the page was read again for it
  let isBehind = false; // while the page is paused

  const hasEnded = (work) => /^(succeeded|done|failed|cancelled)\b/.test(work.drawn);

  // a list shows everything; one of the latest only what begins, since older ones come with each connection
  function isWanted(work) {
    const list = $("[data-works]");
    return list?.dataset.works === work.kind && !("latest" in list.dataset && hasEnded(work));
  }

  function happened({ detail }) {
    const work = JSON.parse(detail.data);
    if (isPaused()) { isBehind = true; return; }
    const places = all(`[data-work="${CSS.escape(work.id)}"]`);
    if (!places.length && !isWanted(work)) return;
    const isOther = places.some((place) => place.dataset.drawn !== work.drawn);
    if ((isOther || !places.length) && readFor.get(work.id) !== work.drawn) {
      readFor.set(work.id, work.drawn);
      if (isOther && hasEnded(work))
        announce(work.id, () => `The ${work.kind} ${work.id} has ended: ${work.drawn.split(" ")[0]}`);
      return readAgain();
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

  async function readLog(id) {
    const log = $("[data-log]");
    if (!log || log.dataset.run !== id || log.dataset.reading) return;
    log.dataset.reading = "yes";
    const answer = await fetch(`${log.dataset.log}?after=${log.dataset.next}`).catch(() => null);
    delete log.dataset.reading;
    if (!answer?.ok) return;
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
  document.addEventListener("baton:read", () => {
    showCopies();
    const log = $("[data-log]");
    if (log) readLog(log.dataset.run);
  });
  feed?.addEventListener("htmx:sse:after:connection", () => readFor.clear()); // a reading may have failed meanwhile
  feed?.addEventListener("run", happened);
  feed?.addEventListener("operation", happened);
  // how long a stream stood still is known after it has moved, also when the operation is done by then
  feed?.addEventListener("event", ({ detail }) => {
    if (!$("#moves") || !["handover", "takeover"].includes(JSON.parse(detail.data).kind)) return;
    if (isPaused()) isBehind = true;
    else readAgain();
  });
  $("#pause-switch")?.addEventListener("click", () => {
    if (isPaused() || !isBehind) return;
    isBehind = false;
    readAgain();
  });
  showCopies();
  const log = $("[data-log]");
  if (log) log.scrollTop = log.scrollHeight;
})();
