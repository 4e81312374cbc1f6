// What the console's other scripts share: finding elements, small icons, reading a part of the page again.
"use strict";
window.page = (() => {
  const $ = (selector, from = document) => from.querySelector(selector);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const feed = $("#feed");

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

  const isPaused = () => $("#pause-switch")?.getAttribute("aria-pressed") === "true";

  // ---- what screen readers hear: at most one message in five seconds ----
  const QUIET_MS = 5000;
  const waiting = new Map(); // subject -> function that returns the words
  let announcedAt = -Infinity;
  let timer = 0;
  function announce(subject, words) {
    waiting.set(subject, words);
    timer ||= setTimeout(() => {
      announcedAt = performance.now();
      timer = 0;
      $("#announce").textContent = [...waiting.values()].map((one) => one()).join(". ");
      waiting.clear();
    }, Math.max(0, announcedAt + QUIET_MS - performance.now()));
  }

  // ---- parts that are more than texts: every [data-region] is read again from the page's own address ----
  let reading = null;
  let isDue = false;
  function readAgain() {
    isDue = true; // what happens while the page is read is in the next one
    reading ??= (async () => {
      while (isDue) {
        isDue = false;
        await readRegions().catch(() => {}); // control is away; the page says so
      }
      reading = null;
    })();
  }

  async function readRegions() {
    const askedAt = performance.now();
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    if (answer.redirected) return location.reload(); // the login has expired
    if (!answer.ok) return;
    const now = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const region of all("[data-region]")) {
      const fresh = now.getElementById(region.id);
      if (fresh) replace(region, fresh);
    }
    document.dispatchEvent(new CustomEvent("baton:read", { detail: { askedAt } }));
  }

  // keeps the focus, what somebody is typing, and what is unfolded
  function replace(region, fresh) {
    const active = document.activeElement;
    const name = region.contains(active) && ["name", "href"].find((one) => active.hasAttribute(one));
    const focused = name && `${active.localName}[${name}="${CSS.escape(active.getAttribute(name))}"]`;
    for (const field of all("input[name]:not([type=hidden])", region)) {
      const twin = $(`input[name="${CSS.escape(field.name)}"]`, fresh);
      if (twin) twin.value = field.value;
    }
    for (const open of all("details[open]", region)) {
      const twin = all("details", fresh).find((one) => $("summary", one).textContent === $("summary", open).textContent);
      if (twin) twin.open = true;
    }
    region.replaceWith(fresh);
    if (focused) $(focused, fresh)?.focus();
  }

  return { $, all, announce, feed, icon, isPaused, readAgain, setText };
})();
