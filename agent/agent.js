/**
 * Baton's agent: takes the fragments of a web page to the producer. docs/agent.md tells how to use it.
 *
 * Every fragment is queued, and kept in localStorage, until the producer says that Kafka has it: so none is lost
 * with the page, and the next one sends what this one could not. One request at a time, in order. When the page is
 * hidden, what is queued goes by beacons at once. A beacon is never answered, so it only marks its fragments, and
 * they are sent again; the consumer drops repeats by their ids, for a while. In doubt a fragment goes rather twice
 * than never. `agent.min.js` is made of this file by `make agent`.
 */
(() => {
  "use strict";

  const MAX_BODY_BYTES = 200_000; // well below the 1 MB that the producer takes
  const MAX_QUEUE_BYTES = 1_000_000; // the site needs its storage (5 MB) too
  const BEACON_BYTES = 64_000; // all beacons in flight have 64 KiB together
  const LEAST_BEACON_BYTES = 16_384; // if not even this much is free, a beacon is not the way
  const REPEAT_MS = 240_000; // for 5 minutes (`repeat_ms`) after a session a consumer knows its ids
  const TICK_MS = 30_000; // so often at least a queue is looked after, and its lease renewed
  const TOMBSTONE_MS = 3_600_000; // longer than a page lies in the back/forward cache
  const ANSWER_MS = 30_000;
  const MAX_WAIT_MS = 60_000; // between two attempts
  const MAX_RETRY_AFTER_S = 300;

  const tag = document.currentScript || document.querySelector('script[src*="/agent."]');
  // `baton` may be there already: the array of the one-line stub, holding what was pushed before now
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

  const random = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (one) => one.toString(16).padStart(2, 0));
  const uuid = () => (crypto.randomUUID ? crypto.randomUUID() : random().join("")); // it needs https, or localhost

  // --- the queue: fragments without an answer, oldest first. An item is { text, bytes, number, name: its place in
  //     storage, isKept: whether it is there, beaconedAt: when it left by beacon (0: it did not), isOffline: that
  //     one had no network, isOut: a farewell that is no beacon has it, isGone: it is queued no more }
  const slot = uuid(); // this load of this page: its fragments' ids and its part of the storage begin with it
  const lease = prefix + slot; // until when nobody else may take them
  const counts = { queued: 0, acknowledged: 0, presumed: 0, rejected: 0, dropped: 0 };
  const leaseMs = 120_000 + batchMs; // timers of hidden tabs may fire only once a minute
  let [queue, queueBytes, number, adoptTimer, isLeaving] = [[], 0, 0, 0, false];

  const tell = (what, items, detail) => {
    if (what in counts) counts[what] += items.length;
    if (items.length && (what === "rejected" || what === "dropped")) console.warn("baton:", what, items.length, detail);
    if (!baton.on) return;
    for (const { text } of items) queueMicrotask(() => baton.on(what, JSON.parse(text), detail));
  };

  const sizeOf = (text) => new Blob([text]).size;
  const isFull = (bytes) => queue.length >= maxQueue || queueBytes + bytes > MAX_QUEUE_BYTES;
  const hold = () => write(lease, Date.now() + (isLeaving ? -1 : leaseMs)); // -1: whoever comes next may have them
  const keep = (item) => (item.isKept = write(item.name, (item.isOffline ? 0 : item.beaconedAt) + item.text));

  const enqueue = (text, itemNumber, beaconedAt, how) => {
    const item = { text, bytes: sizeOf(text), number: itemNumber, name: `${lease} ${itemNumber}`, beaconedAt };
    if (!queue.length) hold();
    queue.push(item);
    queueBytes += item.bytes;
    keep(item);
    tell("queued", [item], how);
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

  /** Another tab of the first visit may have made a key too: before anything is sent, both take the one that stands. */
  const settleKey = () => {
    const standing = (madeKey && read(keyName)) || madeKey;
    const [before, after] = [madeKey, standing].map((key) => `{"key":${JSON.stringify(key)}`);
    const changed = before === after ? [] : queue.filter((item) => item.text.startsWith(before));
    for (const item of changed) keep(Object.assign(item, { text: after + item.text.slice(before.length) }));
    if (baton.key === madeKey) baton.key = standing;
    madeKey = "";
  };

  /** Brings queue and storage to agree, whatever other tabs (or the site) have done to it meanwhile. */
  const reconcile = () => {
    // past that time a repeat would be a session of its own: what left by beacon is presumed to have arrived
    const old = queue.filter((item) => item.beaconedAt && Date.now() - item.beaconedAt > REPEAT_MS);
    forget(old);
    tell("presumed", old, "beacon");
    if (read(lease) === null) queue.forEach(keep); // the site has cleared its storage
    else forget(queue.filter((item) => item.isKept && read(item.name) === null)); // another tab sends them
    if (queue.length) settleKey();
    if (queue.length) hold();
  };

  /** Takes over what pages have left that are gone, and looks again while others are at work. */
  const adopt = () => {
    const now = Date.now();
    clearTimeout(adoptTimer);
    for (const name of names()) {
      const [owner, itemNumber] = name.slice(prefix.length).split(" ");
      const until = +read(prefix + owner);
      if (owner === slot) continue;
      if (until > now && until < now + 2 * leaseMs) { // beyond that it was taken when the clock was ahead
        adoptTimer = setTimeout(adopt, TICK_MS);
      } else if (itemNumber) {
        const value = read(name) || "";
        if (isFull(value.length)) continue;
        remove(name);
        const text = value.slice(value.indexOf("{"));
        // what is no JSON, whoever wrote it, would make the producer refuse its whole batch
        if (attempt(() => JSON.parse(text))) enqueue(text, +itemNumber, parseInt(value), "adopted");
      } else if (!(Math.abs(now - until) < TOMBSTONE_MS)) {
        remove(name); // not before: its page may come back, and must see that its fragments were taken
      }
    }
    queue.sort((one, other) => one.number - other.number);
    arm(batchMs);
  };

  // --- sending
  let [timer, inFlight, failures, isFlushing] = [0, 0, 0, false];
  let [notBefore, toldBefore] = [0, 0]; // by performance.now(), which nobody sets; what the producer asked for

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

  /** Sends if it is time to, and sees to it that this is called again while anything is queued. */
  const tick = () => {
    reconcile();
    isFlushing = isFlushing && queue.length > 0;
    const waitMs = notBefore - performance.now();
    if (queue.length && !inFlight && waitMs <= 0) post(headOf(queue, batchSize, MAX_BODY_BYTES));
    arm(inFlight ? TICK_MS : Math.min(waitMs, TICK_MS)); // an answer arms it again
  };

  /** Sends a batch, and settles each of its fragments by the answer. */
  const post = async (batch) => {
    inFlight += 1;
    tell("sent", batch, "fetch");
    let [status, retryAfter, answer] = [0, null, {}];
    try {
      // a string goes as text/plain: no preflight; no credentials: any allowed origin will do
      const signal = AbortSignal.timeout && AbortSignal.timeout(ANSWER_MS);
      const response = await fetch(url, { method: "POST", body: bodyOf(batch), credentials: "omit", signal });
      status = response.status;
      retryAfter = response.headers.get("Retry-After");
      answer = (await response.json()) || {};
    } catch {} // no answer, or none of the producer's
    inFlight -= 1;
    settle(batch, status, answer);
    const isSettled = batch.every((item) => item.isGone);
    backOff(isSettled, retryAfter);
    if (isSettled && (isFlushing || queue.length >= batchSize)) tick();
    else arm(isSettled ? batchMs : Math.min(notBefore - performance.now(), TICK_MS));
  };

  const listOf = (value, otherwise) => (Array.isArray(value) ? value : otherwise);

  const settle = (batch, status, answer) => {
    // a 200 of somebody in between (the portal of a hotel) holds no `accepted`
    const isTaken = status === 200 && answer.accepted >= 0;
    // nothing will come of these however often they are sent; 408: the body did not get there
    const isRefused = status >= 400 && status < 500 && status !== 408 && status !== 429;
    const unstored = isTaken || isRefused ? [] : listOf(answer.unstored, [...batch.keys()]);
    const again = new Set(unstored.map((index) => batch[index]));
    for (const { index, reason } of listOf(answer.rejected, [])) if (batch[index]) batch[index].reason = reason;
    const open = batch.filter((item) => !item.isGone); // the others have been settled by another answer
    const done = open.filter((item) => !again.has(item));
    forget(done);
    const what = isRefused ? "dropped" : "acknowledged";
    for (const item of done) tell(item.reason ? "rejected" : what, [item], item.reason || status);
    const left = open.filter((item) => !item.isGone);
    for (const item of left) keep(Object.assign(item, { isOut: false, beaconedAt: 0 })); // beacons may fail as well
    tell("failed", left, status);
  };

  const backOff = (isSettled, retryAfter) => {
    failures = isSettled ? 0 : failures + 1;
    const askedS = isSettled ? 0 : +retryAfter || (Date.parse(retryAfter) - Date.now()) / 1000 || 0;
    const waitMs = isSettled ? 0 : Math.min(MAX_WAIT_MS, 500 * 2 ** failures);
    const now = performance.now();
    toldBefore = now + 1000 * Math.min(askedS, MAX_RETRY_AFTER_S);
    // jitter only makes it later: many pages have failed at the same moment
    notBefore = Math.max(toldBefore, now + waitMs) + waitMs * Math.random() * 0.5;
  };

  // --- leaving: the page is hidden, and may never be seen again
  const sayFarewell = ({ type }) => {
    isLeaving = isLeaving || type === "pagehide";
    reconcile();
    // where the producer fails or has asked for patience, what is kept waits for the next page
    let rest = queue.filter((item) => !item.beaconedAt && !item.isOut && !(failures && item.isKept));
    let maxBytes = BEACON_BYTES;
    while (rest.length) {
      const isBeacon = maxBytes >= LEAST_BEACON_BYTES;
      const batch = headOf(rest, maxQueue, isBeacon ? maxBytes : MAX_BODY_BYTES);
      if (!isBeacon) {
        for (const item of batch) item.isOut = true;
        post(batch);
      } else if (attempt(() => navigator.sendBeacon(url, bodyOf(batch)))) {
        tell("sent", batch, "beacon");
        // without a network it is taken all the same, and comes to nothing
        const mark = { beaconedAt: Date.now(), isOffline: navigator.onLine === false };
        for (const item of batch) keep(Object.assign(item, mark));
      } else {
        maxBytes /= 2;
        continue;
      }
      rest = rest.slice(batch.length);
    }
  };

  const comeBack = () => {
    isLeaving = false;
    adopt();
    tick();
  };

  // --- what pages call
  // half of an emoji, as careless cutting leaves it, would make the producer refuse the fragment
  const wellFormed = (_, value) => (typeof value === "string" && value.toWellFormed ? value.toWellFormed() : value);

  const take = (data, end) => {
    number = Math.max(number + 1, Date.now() * 1000);
    const id = `${slot}-${number}`;
    // null: data that is no JSON
    const text = attempt(() => JSON.stringify({ key: baton.key, id, time: Date.now(), end, data }, wellFormed));
    const bytes = sizeOf(text);
    const why = !text ? "no JSON" : bytes > MAX_BODY_BYTES ? "too large" : isFull(bytes) ? "the queue is full" : "";
    if (why) return tell("dropped", [{ text: text || "{}" }], why);
    enqueue(text, number, 0, "");
    if (queue.length >= batchSize && !inFlight) tick();
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
  if (isOff) {
    [keyName, ...names()].forEach(remove);
  } else {
    if (madeKey) write(keyName, madeKey);
    adopt();
    addEventListener("visibilitychange", (event) => (document.hidden ? sayFarewell(event) : comeBack()));
    addEventListener("pagehide", sayFarewell);
    addEventListener("pageshow", (event) => event.persisted && comeBack());
    addEventListener("online", () => {
      notBefore = toldBefore;
      tick();
    });
  }
  // each on its own: one that throws must not take the others with it
  for (const item of baton.splice(0)) queueMicrotask(() => baton.push(item));
})();
