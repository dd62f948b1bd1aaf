// Names sliders, lists, buttons and charts of the panel, which ipywidgets leaves without names.

const CONTROL = "input, select, .noUi-handle, button";

function set(element, attribute, value) {
  if (element.getAttribute(attribute) !== value) element.setAttribute(attribute, value);
}

function nameOne(holder, name) {
  if (holder.classList.contains("memlab-chart")) {
    set(holder, "role", "img");
    set(holder, "aria-label", name);
  } else if (holder.classList.contains("widget-toggle-buttons")) {
    set(holder, "role", "group");
    set(holder, "aria-label", name);
    for (const button of holder.querySelectorAll("button"))
      set(button, "aria-pressed", String(button.classList.contains("mod-active")));
  } else {
    const inner = holder.matches(CONTROL) ? [holder] : holder.querySelectorAll(CONTROL);
    for (const control of inner) {
      set(control, "aria-label", name);
      if (control.classList.contains("jupyter-widgets") && control.classList.contains("widget-toggle-button"))
        set(control, "aria-pressed", String(control.classList.contains("mod-active")));
    }
  }
}

function render({ model, el }) {
  let timer = 0;
  let root = null;
  const apply = () => {
    timer = 0;
    for (const [marker, name] of Object.entries(model.get("names")))
      for (const holder of root.querySelectorAll("." + marker)) nameOne(holder, name);
  };
  const soon = () => {
    if (root !== null && timer === 0) timer = setTimeout(apply, 100);
  };
  const changes = new MutationObserver(soon);
  const begin = () => {
    root = el.closest(".memlab-bench");
    if (root === null) {
      timer = setTimeout(begin, 50); // not attached yet
      return;
    }
    timer = 0;
    changes.observe(root, { subtree: true, childList: true, attributes: true, attributeFilter: ["class"] });
    soon();
  };
  model.on("change:names", soon);
  begin();
  return () => {
    clearTimeout(timer);
    model.off("change:names", soon);
    changes.disconnect();
  };
}

export default { render };
