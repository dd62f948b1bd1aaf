// Names sliders, lists, buttons and charts of the panel, which ipywidgets leaves without names, and gives them the
// keys that they need.

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

// JupyterLab takes keys for its cells where a list or a button has the focus: arrows leave the cell, "b" adds one,
// "d d" deletes it. Within the panel such keys are the control's; those with Ctrl, Alt or Meta stay JupyterLab's.
function ofTheFrontEnd(event) {
  return event.ctrlKey || event.altKey || event.metaKey || event.key === "Escape" || (event.shiftKey && event.key === "Enter");
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
  const keys = (event) => {
    if (root?.contains(event.target)) event.target.toggleAttribute("data-lm-suppress-shortcuts", !ofTheFrontEnd(event));
  };
  window.addEventListener("keydown", keys, { capture: true }); // before JupyterLab, which listens to the document
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
    window.removeEventListener("keydown", keys, { capture: true });
    model.off("change:names", soon);
    changes.disconnect();
  };
}

export default { render };
