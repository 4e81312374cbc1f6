/** The script of /try: adds the agent's tag with the settings in this page's URL, and shows what happens. */
(() => {
  "use strict";

  const given = new URLSearchParams(location.search);
  const attributes = ["write_key", "key", "dnt", "batch_ms", "batch_size", "queue"]
    .filter((name) => given.has(name))
    .map((name) => [`data-${name.replace("_", "-")}`, given.get(name)]);
  const $ = (id) => document.getElementById(id);

  // the stub and the tag, as in docs/agent.md
  window.baton = window.baton || [];
  baton.end = (data) => baton.push((b) => b.end(data));
  const tag = document.createElement("script");
  tag.async = true;
  tag.src = "agent.js";
  for (const [name, value] of attributes) tag.setAttribute(name, value);
  document.head.append(tag);

  const shown = attributes.map(([name, value]) => ` ${name}="${value}"`).join("");
  $("tag").textContent = `<script async src="${new URL("agent.js", location)}"${shown}></script>`;

  const rows = new Map();
  const rowOf = (fragment) => {
    if (!rows.has(fragment.id)) {
      const row = $("fragments").insertRow(0);
      row.id = fragment.id || "";
      row.insertCell().textContent = (fragment.id || "").slice(-16);
      row.insertCell().textContent = (fragment.end ? "END " : "") + (JSON.stringify(fragment.data) || "");
      row.insertCell();
      rows.set(fragment.id, row);
    }
    return rows.get(fragment.id);
  };
  const labels = { sent: (by) => `sent by ${by}`, failed: (status) => `failed (${status || "no answer"}), stays queued` };
  const showCounts = () => {
    if (!baton.counts) return;
    $("key").textContent = baton.key;
    $("counts").textContent = baton.isOff
      ? "the visitor has asked not to be tracked: nothing is sent"
      : Object.entries(baton.counts).map(([name, count]) => `${count} ${name}`).join(", ");
  };

  baton.on = (what, fragment, detail) => {
    const step = document.createElement("div");
    step.className = what;
    step.textContent = labels[what] ? labels[what](detail) : `${what}${detail ? ` (${detail})` : ""}`;
    rowOf(fragment).cells[2].append(step);
    showCounts();
  };
  baton.push(showCounts);
  baton.push({ page: location.pathname });

  const dataOf = (text) => {
    try {
      return JSON.parse(text);
    } catch {
      return text;
    }
  };
  $("push").onclick = () => baton.push(dataOf($("data").value));
  $("many").onclick = () => Array.from({ length: 100 }, (_, n) => baton.push({ n }));
  $("end").onclick = () => baton.end();
  $("flush").onclick = () => baton.flush();
})();
