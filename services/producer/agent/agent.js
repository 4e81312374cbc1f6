/**
 * Baton's agent: takes the fragments of a web page to the producer, each once. docs/agent.md tells how to use it.
 *
 * Every fragment is queued, and kept in localStorage, until the producer says that Kafka has it: so none is lost
 * with the page, and the next page of the site sends what this one could not. One request at a time, in order.
 * When the page is hidden, what is queued goes by beacons at once. A beacon is never answered, so it only marks
 * its fragments: they are sent again as soon as there is somebody to hear the answer, and the consumer drops the
 * repeats by their ids. `agent.min.js` is made of this file by `make agent`.
 */
(() => {
  "use strict";

  const MAX_BODY_BYTES = 200_000; // well below the 1 MB that the producer takes
  const MAX_QUEUE_BYTES = 1_000_000; // the site needs its storage (5 MB) too
  const BEACON_BYTES = 64_000; // all beacons in flight have 64 KiB together
  const LEAST_BEACON_BYTES = 16_384; // if not even this much is free, a beacon is not the way
  const REPEAT_MS = 240_000; // for 5 minutes (`repeat_ms`) after a session a consumer knows its ids
  const LEASE_MS = 120_000; // timers of hidden tabs may fire only once a minute
  const TOMBSTONE_MS = 3_600_000; // longer than a page lies in the back/forward cache
  const ANSWER_MS = 30_000;
  const MAX_WAIT_MS = 60_000;
  const MAX_RETRY_AFTER_S = 300;

  const tag = document.currentScript || document.querySelector('script[src*="/agent."]');
  // `baton` may be there already: as the array of the one-line stub, holding what was pushed before now
  const baton = Array.isArray(window.baton) ? window.baton : [];
  if (!tag || baton.flush) return;
  const settings = tag.dataset;
  const url = new URL(settings.url || "fragments", tag.src || location.href);
  const prefix = `baton ${url} `;
  if (settings.writeKey) url.searchParams.set("write_key", settings.writeKey);
  const batchMs = +(settings.batchMs || 1000);
  const batchSize = +settings.batchSize || 100;
  const maxQueue = +settings.queue || 1000;

  // --- storage, which may be forbidden or full: then the queue lives as long as the page

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

  const uuid = () =>
    crypto.randomUUID // only there on https and localhost
      ? crypto.randomUUID()
      : Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, 0)).join("");

  // --- the queue: fragments without an answer, oldest first. An item is
  //     { text, bytes, number, name: its place in storage, isKept: whether it is there,
  //       beaconedAt: when it left by beacon (0: it did not), isOut: whether a farewell request holds it }

  const slot = uuid(); // this load of this page: its fragments' ids and its part of the storage begin with it
  const lease = prefix + slot; // until when nobody else may take them
  let queue = [];
  let queueBytes = 0;
  let number = 0;
  let leaseMs = LEASE_MS + batchMs;
  const counts = { queued: 0, acknowledged: 0, rejected: 0, dropped: 0 };

  const tell = (what, items, detail) => {
    if (what in counts) counts[what] += items.length;
    if (items.length && (what === "rejected" || what === "dropped")) console.warn("baton:", what, items.length, detail);
    for (const item of items) {
      try {
        if (baton.on) baton.on(what, JSON.parse(item.text), detail);
      } catch (error) {
        console.error(error);
      }
    }
  };

  const hold = () => write(lease, Date.now() + leaseMs);
  const keep = (item) => {
    item.isKept = write(item.name, (item.isOffline ? 0 : item.beaconedAt) + item.text);
  };

  const enqueue = (text, bytes, itemNumber, beaconedAt) => {
    const item = { text, bytes, number: itemNumber, name: `${lease} ${itemNumber}`, beaconedAt };
    if (!queue.length) hold();
    queue.push(item);
    queueBytes += bytes;
    keep(item);
    return item;
  };

  const isFull = (bytes) => queue.length >= maxQueue || queueBytes + bytes > MAX_QUEUE_BYTES;

  const forget = (items) => {
    const gone = new Set(items);
    queue = queue.filter((item) => !gone.has(item));
    queueBytes = queue.reduce((sum, item) => sum + item.bytes, 0);
    for (const item of items) if (item.isKept) remove(item.name);
    if (!queue.length) remove(lease);
  };

  /** Brings queue and storage to agree, whatever other tabs (or the site) have done to it meanwhile. */
  const reconcile = () => {
    const now = Date.now();
    // past that time a repeat would be a new session: what left by a beacon then counts as arrived
    const old = queue.filter((item) => item.beaconedAt && now - item.beaconedAt > REPEAT_MS);
    forget(old);
    tell("acknowledged", old, "beacon");
    if (read(lease) === null) queue.forEach(keep); // the site has cleared its storage
    else forget(queue.filter((item) => item.isKept && read(item.name) === null)); // another tab sends them
    if (queue.length) hold();
  };

  /** Takes over what tabs have left that are gone. */
  const adopt = () => {
    const now = Date.now();
    let others = false;
    for (const name of names()) {
      const [owner, itemNumber] = name.slice(prefix.length).split(" ");
      if (owner === slot) continue;
      const until = +read(prefix + owner);
      if (until > now) {
        others = true;
        continue;
      }
      if (!itemNumber) {
        // it stays for a while: its page may come back, and must see that its fragments were taken
        if (!(now - until < TOMBSTONE_MS)) remove(name);
        continue;
      }
      const value = read(name) || "";
      if (isFull(value.length)) continue;
      remove(name);
      const text = value.slice(value.indexOf("{"));
      // what is no JSON, whoever wrote it, would make the producer refuse its whole batch
      if (attempt(() => JSON.parse(text))) tell("queued", [enqueue(text, sizeOf(text), +itemNumber, parseInt(value))], "adopted");
    }
    queue.sort((one, other) => one.number - other.number);
    if (others) setTimeout(adopt, LEASE_MS);
    arm(batchMs);
  };

  // --- sending

  let timer = 0;
  let inFlight = 0;
  let failures = 0;
  let notBefore = 0; // by performance.now(), which nobody sets
  let toldBefore = 0; // the part of it that the producer asked for
  let isFlushing = false;

  const sizeOf = (text) => new Blob([text]).size;
  const bodyOf = (items) => `[${items.map((item) => item.text)}]`;

  /** The first of these items that fit into a body; at least one. */
  const headOf = (items, maxItems, maxBytes) => {
    let bytes = 2;
    let count = 0;
    while (count < Math.min(items.length, maxItems)) {
      bytes += items[count].bytes + 1;
      if (count && bytes > maxBytes) break;
      count += 1;
    }
    return items.slice(0, count);
  };

  const arm = (ms) => {
    clearTimeout(timer);
    timer = queue.length && setTimeout(tick, ms);
  };

  /** Sends if it is time to, and sees to it that this is called again while anything is queued. */
  const tick = () => {
    timer = 0;
    reconcile();
    isFlushing = isFlushing && queue.length > 0;
    const waitMs = notBefore - performance.now();
    if (queue.length && !inFlight && waitMs <= 0) post(headOf(queue, batchSize, MAX_BODY_BYTES));
    arm(inFlight ? LEASE_MS / 4 : Math.min(waitMs, LEASE_MS / 4)); // an answer arms it again
  };

  /** Sends a batch, and settles each of its fragments by the answer. */
  const post = async (batch) => {
    inFlight += 1;
    tell("sent", batch, "fetch");
    let status = 0;
    let retryAfter = null;
    let answer = {};
    try {
      // a string goes as text/plain: no preflight; no credentials: any allowed origin will do
      const response = await fetch(url, {
        method: "POST",
        body: bodyOf(batch),
        credentials: "omit",
        signal: AbortSignal.timeout && AbortSignal.timeout(ANSWER_MS),
      });
      status = response.status;
      retryAfter = response.headers.get("Retry-After");
      answer = (await response.json()) || {};
    } catch {} // no answer, or none of the producer's
    inFlight -= 1;
    settle(batch, status, answer);
    const isStored = batch.every((item) => !queue.includes(item));
    backOff(isStored, retryAfter);
    if (isStored && (isFlushing || queue.length >= batchSize)) tick();
    else arm(isStored ? batchMs : Math.min(notBefore - performance.now(), LEASE_MS / 4));
  };

  const listOf = (value, otherwise) => (Array.isArray(value) ? value : otherwise);

  const settle = (batch, status, answer) => {
    // a 200 of somebody in between (the portal of a hotel) holds no `accepted`
    const isTaken = status === 200 && answer.accepted >= 0;
    // nothing will come of these however often they are sent; 408: the body did not get there
    const isRefused = status >= 400 && status < 500 && status !== 408 && status !== 429;
    const unstored = isTaken || isRefused ? [] : listOf(answer.unstored, batch.keys());
    const again = new Set([...unstored].map((index) => batch[index]));
    const rejected = new Map(listOf(answer.rejected, []).map((item) => [batch[item.index], item.reason]));
    // what is no longer queued has been settled by another answer
    const [done, left] = [[], []];
    for (const item of batch) if (queue.includes(item)) (again.has(item) && !rejected.has(item) ? left : done).push(item);
    forget(done);
    for (const item of left) {
      item.isOut = false;
      item.beaconedAt = 0; // its beacon will have fared no better
      keep(item);
    }
    for (const item of done) {
      if (rejected.has(item)) tell("rejected", [item], rejected.get(item));
      else tell(isRefused ? "dropped" : "acknowledged", [item], status);
    }
    tell("failed", left, status);
  };

  const backOff = (isStored, retryAfter) => {
    failures = isStored ? 0 : failures + 1;
    const now = performance.now();
    const askedS = isStored ? 0 : +retryAfter || (Date.parse(retryAfter) - Date.now()) / 1000 || 0;
    toldBefore = now + 1000 * Math.min(askedS, MAX_RETRY_AFTER_S);
    const waitMs = isStored ? 0 : Math.min(MAX_WAIT_MS, 500 * 2 ** failures);
    // the jitter only makes it later: many pages have failed at the same moment
    notBefore = isStored ? 0 : Math.max(toldBefore, now + waitMs) + waitMs * Math.random() * 0.5;
  };

  // --- leaving: the page is hidden, and may never be seen again

  const sayFarewell = () => {
    reconcile();
    const isOffline = navigator.onLine === false;
    // where the producer fails or has asked for patience, what is kept waits for the next page
    let rest = queue.filter((item) => !item.beaconedAt && !item.isOut && !(failures && item.isKept));
    let maxBytes = BEACON_BYTES;
    while (rest.length) {
      const isBeacon = maxBytes >= LEAST_BEACON_BYTES;
      const batch = headOf(rest, maxQueue, isBeacon ? maxBytes : MAX_BODY_BYTES);
      if (!isBeacon) {
        for (const item of batch) item.isOut = true;
        post(batch);
      } else if (navigator.sendBeacon && navigator.sendBeacon(url, bodyOf(batch))) {
        tell("sent", batch, "beacon");
        for (const item of batch) {
          item.beaconedAt = Date.now();
          item.isOffline = isOffline; // then the beacon is taken, and comes to nothing
          keep(item);
        }
      } else {
        maxBytes /= 2;
        continue;
      }
      rest = rest.slice(batch.length);
    }
  };

  const comeBack = () => {
    leaseMs = LEASE_MS + batchMs;
    adopt();
    tick();
  };

  addEventListener("visibilitychange", () => (document.visibilityState === "hidden" ? sayFarewell() : comeBack()), true);
  addEventListener("pagehide", () => {
    leaseMs = -1; // whoever comes next may have them
    sayFarewell();
  });
  addEventListener("pageshow", (event) => event.persisted && comeBack());
  addEventListener("online", () => {
    notBefore = toldBefore;
    tick();
  });

  // --- what pages call

  // half of an emoji, as careless cutting leaves it, would make the producer refuse the fragment
  const wellFormed = (_, value) => (typeof value === "string" && value.toWellFormed ? value.toWellFormed() : value);

  const take = (data, end) => {
    number = Math.max(number + 1, Date.now() * 1000);
    const id = `${slot}-${number}`;
    let text = "{}";
    let why = "";
    try {
      text = JSON.stringify({ key: baton.key, id, time: Date.now(), end, data }, wellFormed);
    } catch (error) {
      why = `${error}`;
    }
    const bytes = sizeOf(text);
    if (bytes > MAX_BODY_BYTES) why = "too large";
    if (isFull(bytes)) why = "the queue is full";
    if (why) {
      tell("dropped", [{ text }], why);
      return undefined;
    }
    tell("queued", [enqueue(text, bytes, number, 0)], "");
    if (queue.length >= batchSize && !inFlight) tick();
    else if (!timer) arm(batchMs);
    return id;
  };

  const hasAsked = navigator.globalPrivacyControl || navigator.doNotTrack === "1";
  const isOff = !!hasAsked && settings.dnt !== "ignore";
  const keyName = "baton key";
  if (isOff) [keyName, ...names()].forEach(remove);

  Object.assign(baton, {
    key: isOff ? null : settings.key || read(keyName) || uuid(),
    counts,
    isOff,
    /** Queues a fragment with this data; its id, or undefined if it was dropped. A function is called with `baton`. */
    push: (data) => (typeof data === "function" ? data(baton) : isOff ? undefined : take(data)),
    /** Queues a fragment that ends the session. */
    end: (data) => (isOff ? undefined : take(data, true)),
    /** Sends now what is queued. */
    flush: () => {
      isFlushing = true;
      tick();
    },
  });
  const waiting = baton.splice(0);
  window.baton = baton;
  if (!isOff) {
    if (!settings.key) write(keyName, baton.key);
    adopt();
  }
  // each on its own: one that throws must not take the others with it
  for (const item of waiting) queueMicrotask(() => baton.push(item));
})();
