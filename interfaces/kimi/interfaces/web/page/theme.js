// Runs before the first paint, so that a chosen theme does not flash.
(function () {
  try {
    const { theme } = JSON.parse(localStorage.getItem("kimi.preferences") || "{}");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // no storage: the system's colours
  }
})();
