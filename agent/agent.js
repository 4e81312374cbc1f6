/**
 * Baton's agent: sends the fragments of a web page to the producer. docs/agent.md explains how to use it.
 *
 * Every fragment is queued and stored in localStorage until the producer confirms that Kafka has it. So none is lost
 * with its page: the next page sends what this one could not. Requests are sent one at a time, in order. When the
 * page is hidden, beacons send the whole queue at once. The page cannot read the answer to a beacon, so a beacon only
 * marks its fragments, and they are sent again; the consumer drops repeats by id, for a while. When in doubt, the
 * agent sends a fragment twice rather than never. `make agent` minifies this file to `agent.min.js`.
 */
(() => {
  "use strict";

  const MAX_BODY_BYTES = 200_000; // well below the 1 MB that the producer accepts
  const MAX_QUEUE_BYTES = 1_000_000; // the site needs its storage (5 MB) too
  const BEACON_BYTES = 64_000; // all beacons in flight share 64 KiB
  const LEAST_BEACON_BYTES = 16_384; // if not even this much is free, use a request instead
  const REPEAT_MS = 240_000; // a consumer remembers a session's ids for 5 minutes (`repeat_ms`)
  const TICK_MS = 30_000; // how often, at least, to check the queue and renew its lease
  const TOMBSTONE_MS = 3_600_000; // longer than a page stays in the back/forward cache
  const ANSWER_MS = 30_000;
  const MAX_WAIT_MS = 60_000; // between two attempts
  const MAX_RETRY_AFTER_S = 300;
  const REFUSALS = [400, 401, 403, 413, 415, 422]; // from a producer: sending the same again cannot help

  const tag = document.currentScript || document.querySelector('script[src*="/agent."]');
  // `baton` may already exist: the array of the one-line stub, with what was pushed before this script loaded
  const baton = Array.isArray(window.baton) ? window.baton : [];
  if (!tag || baton.flush) return;
  const settings = tag.dataset;
  const url = new URL(settings.url || "fragments", tag.src || location.href);
  const prefix = `baton ${url} `;
  if (settings.writeKey) url.searchParams.set("write_key", settings.writeKey);
  const batchMs = +(settings.batchMs || 1000);
  const batchSize = +settings.batchSize || 100;
  const maxQueue = +settings.queue || 1000;

  // --- storage: it may be forbidden or full; then the queue lives only as long as the page
  const attempt = (what) => {
    try {
      return what();
    } catch {
      return null;
    }
  };
  const read = (name) => attempt(() => localStorage.getItem(name));
  const write = (name, value) => attempt(() => (localStorage.setItem(name, value), true));
  const remove = (name) => attempt(() => localStorage.removeItem(name));
  const names = () => attempt(() => Object.keys(localStorage).filter((name) => name.startsWith(prefix))) || [];

  const random = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (one) => one.toString(16).padStart(2, 0));
  const uuid = () => (crypto.randomUUID ? crypto.randomUUID() : random().join("")); // randomUUID needs https

  // --- the queue: fragments that are not settled, oldest first. An item is { text, bytes, number, name: its key in
  //     storage, isKept: whether it is stored, beaconedAt: when a beacon took it (0: none did), isOffline: there was
  //     no network then, isOut: the leaving page sent it by a plain request, isGone: it is no longer queued }
  const slot = uuid(); // identifies this load of the page: prefix of its fragments' ids and of its storage keys
  const lease = prefix + slot; // the time until which no other page may adopt the stored fragments
  const counts = { queued: 0, acknowledged: 0, presumed: 0, rejected: 0, dropped: 0 };
  const leaseMs = 120_000 + batchMs; // timers of hidden tabs may fire only once a minute
  let [queue, queueBytes, number, adoptTimer, isLeaving] = [[], 0, 0, 0, false];

  const report = (what, items, detail) => {
    if (what in counts) counts[what] += items.length;
    if (items.length && (what === "rejected" || what === "dropped")) console.warn("baton:", what, items.length, detail);
    if (baton.on) for (const { text } of items) queueMicrotask(() => baton.on(what, JSON.parse(text), detail));
  };

  const sizeOf = (text) => new Blob([text]).size;
  const isFull = (bytes) => queue.length >= maxQueue || queueBytes + bytes > MAX_QUEUE_BYTES;
  const hold = () => write(lease, Date.now() + (isLeaving ? -1 : leaseMs)); // -1: the next page may adopt them at once
  const keep = (item) => (item.isKept = write(item.name, (item.isOffline ? 0 : item.beaconedAt) + item.text));

  const enqueue = (text, itemNumber, beaconedAt, how) => {
    const item = { text, bytes: sizeOf(text), number: itemNumber, name: `${lease} ${itemNumber}`, beaconedAt };
    if (!queue.length) hold();
    queue.push(item);
    queueBytes += item.bytes;
    keep(item);
    report("queued", [item], how);
  };

  const forget = (items) => {
    for (const item of items) {
      item.isGone = true;
      queueBytes -= item.bytes;
      if (item.isKept) remove(item.name);
    }
    queue = queue.filter((item) => !item.isGone);
    if (!queue.length) remove(lease);
  };

  /** Another tab of a first visit may have created a key too: before they send, both switch to the stored key. */
  const settleKey = () => {
    const standing = (madeKey && read(keyName)) || madeKey;
    const [before, after] = [madeKey, standing].map((key) => `{"key":${JSON.stringify(key)}`);
    const changed = before === after ? [] : queue.filter((item) => item.text.startsWith(before));
    for (const item of changed) keep(Object.assign(item, { text: after + item.text.slice(before.length) }));
    if (baton.key === madeKey) baton.key = standing;
    madeKey = "";
  };

  /** Makes queue and storage agree, whatever other tabs (or the site) have done to the storage meanwhile. */
  const reconcile = () => {
    // after that time a repeat could become a second session: presume that beacons have arrived
    const old = queue.filter((item) => item.beaconedAt && Date.now() - item.beaconedAt > REPEAT_MS);
    forget(old);
    report("presumed", old, "beacon");
    if (read(lease) === null) queue.forEach(keep); // the site has cleared its storage
    else forget(queue.filter((item) => item.isKept && read(item.name) === null)); // another tab adopted them
    if (queue.length) settleKey();
    if (queue.length) hold();
  };

  /** Adopts the fragments of pages that are gone, and checks again later while other pages are open. */
  const adopt = () => {
    const now = Date.now();
    clearTimeout(adoptTimer);
    for (const name of names()) {
      const [owner, itemNumber] = name.slice(prefix.length).split(" ");
      const until = +read(prefix + owner);
      if (owner === slot) continue;
      if (until > now && until < now + 2 * leaseMs) { // a later lease was written while the clock was ahead
        adoptTimer = setTimeout(adopt, TICK_MS);
      } else if (itemNumber) {
        const value = read(name) || "";
        if (isFull(value.length)) continue;
        remove(name);
        const text = value.slice(value.indexOf("{"));
        // text that is not JSON, whatever wrote it, must not get into a batch
        if (attempt(() => JSON.parse(text))) enqueue(text, +itemNumber, parseInt(value), "adopted");
      } else if (!(Math.abs(now - until) < TOMBSTONE_MS)) {
        remove(name); // not earlier: its page may return from the cache, and must see that they were adopted
      }
    }
    queue.sort((one, other) => one.number - other.number);
    arm(batchMs);
  };

  // --- sending
  let [timer, inFlight, failures, isFlushing] = [0, 0, 0, false];
  let [notBefore, retryAt] = [0, 0]; // in performance.now(), which no clock change affects; retryAt: by Retry-After

  const bodyOf = (items) => `[${items.map((item) => item.text)}]`;

  /** The first of these items that fit into a body; at least one. */
  const headOf = (items, maxItems, maxBytes) => {
    let bytes = 2;
    const end = items.slice(0, maxItems).findIndex((item, index) => (bytes += item.bytes + 1) > maxBytes && index);
    return items.slice(0, end < 0 ? maxItems : end);
  };

  const arm = (ms) => {
    clearTimeout(timer);
    timer = queue.length && setTimeout(tick, ms);
  };

  /** Sends a batch if it is due, and schedules the next call while anything is queued. */
  const tick = () => {
    reconcile();
    isFlushing = isFlushing && queue.length > 0;
    const waitMs = notBefore - performance.now();
    if (queue.length && !inFlight && waitMs <= 0) post(headOf(queue, batchSize, MAX_BODY_BYTES));
    arm(inFlight ? TICK_MS : Math.min(waitMs, TICK_MS)); // the answer arms it again
  };

  /** Sends a batch, and settles each of its fragments according to the answer. */
  const post = async (batch) => {
    inFlight += 1;
    report("sent", batch, "fetch");
    let [status, retryAfter, answer] = [0, null, {}];
    try {
      // a string is sent as text/plain, hence no preflight; without credentials `*` is enough as allowed origin
      const signal = AbortSignal.timeout && AbortSignal.timeout(ANSWER_MS);
      const response = await fetch(url, { method: "POST", body: bodyOf(batch), credentials: "omit", signal });
      status = response.status;
      retryAfter = response.headers.get("Retry-After");
      answer = (await response.json()) || {};
    } catch {} // no answer, or not one from the producer
    inFlight -= 1;
    settle(batch, status, answer);
    const isSettled = batch.every((item) => item.isGone);
    backOff(isSettled, retryAfter);
    if (isSettled && (isFlushing || queue.length >= batchSize)) tick();
    else arm(isSettled ? batchMs : Math.min(notBefore - performance.now(), TICK_MS));
  };

  const settle = (batch, status, { type, accepted, rejected, unstored }) => {
    // only a producer settles fragments, not an ingress' 404, a firewall's 403 or the 200 of a hotel's portal
    const isRefused = REFUSALS.includes(status) && /^urn:baton:/.test(type);
    const isSettled = isRefused || (status === 200 && Number.isInteger(accepted));
    const isPartly = status === 503 && Array.isArray(unstored) && unstored.every((index) => batch[index]);
    const left = isSettled ? [] : isPartly ? unstored.map((index) => batch[index]) : batch;
    const named = Array.isArray(rejected) ? rejected.filter(Boolean) : [];
    const reasons = new Map(named.map(({ index, reason }) => [batch[index], reason || "rejected"]));
    const done = batch.filter((item) => !item.isGone && !left.includes(item)); // gone: another answer settled it
    forget(done);
    const outcomeOf = (item) => (reasons.has(item) ? "rejected" : isRefused ? "dropped" : "acknowledged");
    for (const item of done) report(outcomeOf(item), [item], reasons.get(item) || status);
    const failed = batch.filter((item) => !item.isGone);
    for (const item of failed) keep(Object.assign(item, { isOut: false, beaconedAt: 0 })); // so may have beacons
    report("failed", failed, status);
  };

  const backOff = (isSettled, retryAfter) => {
    failures = isSettled ? 0 : failures + 1;
    const askedS = isSettled ? 0 : +retryAfter || (Date.parse(retryAfter) - Date.now()) / 1000 || 0;
    const waitMs = isSettled ? 0 : Math.min(MAX_WAIT_MS, 500 * 2 ** failures);
    const now = performance.now();
    retryAt = now + 1000 * Math.min(askedS, MAX_RETRY_AFTER_S);
    // jitter only delays: many pages may have failed at the same moment
    notBefore = Math.max(retryAt, now + waitMs) + waitMs * Math.random() * 0.5;
  };

  // --- leaving: the page is hidden, and may never become visible again
  const sendAll = ({ type }) => {
    isLeaving = isLeaving || type === "pagehide";
    reconcile();
    // if the producer fails or has sent Retry-After, stored fragments wait for the next page
    let rest = queue.filter((item) => !item.beaconedAt && !item.isOut && !(failures && item.isKept));
    let maxBytes = BEACON_BYTES;
    while (rest.length) {
      const isBeacon = maxBytes >= LEAST_BEACON_BYTES;
      const batch = headOf(rest, maxQueue, isBeacon ? maxBytes : MAX_BODY_BYTES);
      if (!isBeacon) {
        for (const item of batch) item.isOut = true;
        post(batch);
      } else if (attempt(() => navigator.sendBeacon(url, bodyOf(batch)))) {
        report("sent", batch, "beacon");
        // the browser accepts a beacon without a network too, but then never sends it
        const mark = { beaconedAt: Date.now(), isOffline: navigator.onLine === false };
        for (const item of batch) keep(Object.assign(item, mark));
      } else {
        maxBytes /= 2;
        continue;
      }
      rest = rest.slice(batch.length);
    }
  };

  const resume = () => {
    isLeaving = false;
    adopt();
    tick();
  };

  // --- the interface for pages
  // careless slicing leaves half of an emoji, which the producer rejects; JSON.stringify escapes it, also in names
  const repair = (text) => text.replace(/\\(ud[89a-f]..|.)/g, (all, code) => (code[1] ? "\ufffd" : all));

  const add = (data, end) => {
    number = Math.max(number + 1, Date.now() * 1000);
    const id = `${slot}-${number}`;
    const key = Number.isFinite(baton.key) ? String(baton.key) : baton.key;
    const isKey = typeof key === "string" && key && sizeOf(key) <= 256; // as the producer demands
    const text = attempt(() => repair(JSON.stringify({ key, id, time: Date.now(), end, data }))); // null: not JSON
    const bytes = sizeOf(text);
    const fault = !isKey ? "the key is not a text of 1 to 256 bytes" : !text ? "not JSON" : "";
    const why = fault || (bytes > MAX_BODY_BYTES ? "too large" : isFull(bytes) ? "the queue is full" : "");
    if (why) return report("dropped", [{ text: text || "{}" }], why);
    enqueue(text, number, 0, "");
    // not while the producer fails: a tick reads the whole queue, and each push would cause one
    if (queue.length >= batchSize && !inFlight && performance.now() >= notBefore) tick();
    else if (!timer) arm(batchMs);
    return id;
  };

  const isOff = settings.dnt !== "ignore" && (navigator.globalPrivacyControl || navigator.doNotTrack === "1");
  const keyName = "baton key";
  const givenKey = settings.key || read(keyName);
  let madeKey = isOff || givenKey ? "" : uuid(); // until the first fragment is sent
  window.baton = Object.assign(baton, {
    key: isOff ? null : givenKey || madeKey,
    counts,
    isOff: !!isOff,
    /** Queues a fragment; returns its id, or undefined if it was dropped. Calls a function with `baton` instead. */
    push: (data) => (typeof data === "function" ? data(baton) : isOff ? undefined : add(data)),
    /** Queues a fragment that ends the session. */
    end: (data) => (isOff ? undefined : add(data, true)),
    /** Sends the queue now. */
    flush: () => {
      isFlushing = true;
      tick();
    },
  });
  if (isOff) {
    [keyName, ...names()].forEach(remove);
  } else {
    if (madeKey) write(keyName, madeKey);
    adopt();
    addEventListener("visibilitychange", (event) => (document.hidden ? sendAll(event) : resume()));
    addEventListener("pagehide", sendAll);
    addEventListener("pageshow", (event) => event.persisted && resume());
    addEventListener("online", () => {
      notBefore = retryAt;
      tick();
    });
  }
  // one by one: an item that throws must not affect the others
  for (const item of baton.splice(0)) queueMicrotask(() => baton.push(item));
})();
