// Single keys, which can be switched off, and the theme.
"use strict";
(() => {
  const { $, all, feed } = page;
  const stored = (name) => localStorage.getItem("baton." + name);
  const store = (name, value) => localStorage.setItem("baton." + name, value);

  function switchTheme() {
    const root = document.documentElement;
    const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
    store("theme", root.dataset.theme);
  }
  $("#theme-switch").addEventListener("click", switchTheme);

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
    "/": () => ($("#find") ?? $("input[type=search]"))?.focus(),
    p: () => feed && $("#pause-switch").click(), t: switchTheme, "?": () => $("#keys").showModal(),
    j: () => moveRow(1), k: () => moveRow(-1), "[": () => goToStream(-1), "]": () => goToStream(1),
  };
  const off = $("#keys-off");
  off.checked = stored("keys") === "off";
  off.addEventListener("change", () => store("keys", off.checked ? "off" : "on"));
  $("#keys-switch").addEventListener("click", () => $("#keys").showModal());
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || off.checked) return;
    if (event.target.matches?.("input, select, textarea") || $("dialog[open]")) return;
    const view = all(".bar nav a")[Number(event.key) - 1];
    if (view) return view.click();
    if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });
})();
