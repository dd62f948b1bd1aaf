// Brings plotly.js into the page once, for all charts, and leaves a window.Plotly of others alone.

function initialize({ model }) {
  const shared = (globalThis.memlabPlotly ??= {});
  if (shared.started) return;
  shared.started = true;
  shared.loaded ??= new Promise((resolve) => (shared.resolve = resolve));
  // anywidget gives up a widget that is not there after two seconds, and this holds the page for up to one: later.
  const later = globalThis.requestIdleCallback ?? setTimeout;
  later(() => {
    const module = { exports: {} };
    new Function("module", "exports", "define", model.get("source"))(module, module.exports, undefined);
    shared.resolve(module.exports);
  });
}

export default { initialize, render() {} };
