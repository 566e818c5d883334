// A list of any length in a scrolling box: items stand in sections, and only sections near the screen have nodes. The
// others keep their height. Nothing on the screen moves when something above it gets its nodes back.

import { el } from "./dom.js";

const PER_SECTION = 24;
const SECTION_HEIGHT = 1200;
const KEPT_WHOLE = 8;
const NEAR_END = 48;
const NEW_HEIGHT = 100;  // of an item that is still to be written

export class Flow {
  /** `draw(item)` returns `{node, update()}`; `estimate(item)` its height in pixels before it was drawn. */
  constructor(scroller, host, draw, estimate) {
    Object.assign(this, { scroller, host, draw, estimate });
    this.observer = new IntersectionObserver((entries) => this.see(entries), { root: scroller, rootMargin: "1400px 0px" });
    scroller.addEventListener("scroll", () => this.scrolled(), { passive: true });
    new ResizeObserver(() => this.follow && this.toEnd()).observe(scroller);
    this.reset();
  }

  reset() {
    this.observer.disconnect();
    this.sections = [];
    this.places = new Map();
    this.nodes = new WeakMap();
    this.dirty = new Set();
    this.passed = null;
    this.follow = true;
    this.past = true;
    this.host.replaceChildren();
  }

  add(item) {
    let section = this.sections.at(-1);
    if (!section || section.items.length >= PER_SECTION || section.height > SECTION_HEIGHT) {
      section = { items: [], views: null, node: el("div", { class: "section" }), height: 0 };
      this.sections.push(section);
      this.nodes.set(section.node, section);
      if (!this.past) this.attach(section);
    }
    section.items.push(item);
    this.places.set(item, section);
    section.height += this.past ? this.estimate(item) : NEW_HEIGHT;
    this.change(item);
  }

  change(item) {
    if (this.past) return;
    if (!this.dirty.size) requestAnimationFrame(() => this.flush());
    this.dirty.add(item);
  }

  /** Show what was read of the past, at its end. */
  ready() {
    this.past = false;
    for (const section of this.sections) section.node.style.height = `${section.height}px`;
    this.host.append(...this.sections.map((section) => section.node));
    for (const section of this.sections.slice(-2)) this.mount(section);
    for (const section of this.sections) this.observer.observe(section.node);
    this.toEnd();
  }

  /** Draw what has changed. Called once a frame. */
  flush() {
    if (!this.dirty.size) return;
    for (const item of this.dirty) {
      const section = this.places.get(item);
      if (section?.views) this.drawItem(section, item);
    }
    this.dirty.clear();
    this.leave();
    if (this.follow) this.toEnd();
    else this.onAway?.(true);
  }

  toEnd() {
    this.follow = true;
    this.scroller.scrollTop = this.scroller.scrollHeight;
    this.onAway?.(false);
  }

  attach(section) {
    section.views = new Map();
    this.host.append(section.node);
    this.observer.observe(section.node);
  }

  drawItem(section, item) {
    const known = section.views.get(item);
    if (known) return known.update();
    const view = this.draw(item);
    section.views.set(item, view);
    section.node.append(view.node);
    return undefined;
  }

  mount(section) {
    section.views = new Map();
    section.node.style.height = "";
    for (const item of section.items) this.drawItem(section, item);
  }

  unmount(section, height) {
    if (this.sections.length <= KEPT_WHOLE || section.node.contains(document.activeElement)) return;
    section.views = null;
    section.node.style.height = `${height}px`;
    section.node.replaceChildren();
  }

  see(entries) {
    this.hold(() => {
      for (const { target, isIntersecting, boundingClientRect } of entries) {
        const section = this.nodes.get(target);
        if (!section) continue;
        if (isIntersecting) {
          if (!section.views) this.mount(section);
          if (section === this.passed) this.passed = null;
        } else if (section.views) {
          if (section === this.sections.at(-1)) this.passed = section;
          else this.unmount(section, boundingClientRect.height);
        }
      }
    });
  }

  // The last section keeps its nodes out of sight, where they still change, until another one follows it.
  leave() {
    const section = this.passed;
    if (!section || section === this.sections.at(-1)) return;
    this.passed = null;
    this.unmount(section, section.node.getBoundingClientRect().height);
  }

  // Changes what is above the screen without moving what is on it.
  hold(change) {
    if (this.follow) {
      change();
      this.toEnd();
      return;
    }
    const box = this.scroller.getBoundingClientRect();
    const anchor = document.elementFromPoint(box.left + box.width / 2, box.top + 8)?.closest(".section");
    const before = anchor?.getBoundingClientRect().top;
    change();
    if (anchor) this.scroller.scrollTop += anchor.getBoundingClientRect().top - before;
  }

  scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    this.follow = scrollHeight - scrollTop - clientHeight < NEAR_END;
    this.onAway?.(!this.follow);
  }
}
