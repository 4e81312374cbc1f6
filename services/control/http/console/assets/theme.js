// Before the page is drawn: the theme that the user chose; without one, that of the system.
(() => {
  const theme = localStorage.getItem("baton.theme");
  if (theme) document.documentElement.dataset.theme = theme;
  document.documentElement.classList.add("js");
})();
