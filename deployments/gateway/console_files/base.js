"use strict";
// What every page uses: rendering, formats, small components. All files of the console are one script.

const {html, render, useState, useEffect, useRef, useMemo, useCallback} = htmPreact;

/** The address of the gateway with its route prefix; ends in a slash. */
const ROOT = new URL("..", document.currentScript.src).href;

const NOTHING = "–";

function ms(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return NOTHING;
  if (value >= 60_000) return `${(value / 60_000).toFixed(1)} min`;
  if (value >= 1_000) return `${(value / 1_000).toFixed(2)} s`;
  if (value >= 100) return `${value.toFixed(0)} ms`;
  return `${value.toFixed(value >= 10 ? 1 : 2)} ms`;
}

function number(value, digits = 0) {
  if (value === null || value === undefined || Number.isNaN(value)) return NOTHING;
  return value.toLocaleString("en", {maximumFractionDigits: digits, minimumFractionDigits: digits});
}

function share(value, digits = 1) {
  return value === null || value === undefined || Number.isNaN(value) ? NOTHING : `${(100 * value).toFixed(digits)} %`;
}

function clock(unix) {
  return unix ? new Date(unix * 1000).toLocaleTimeString("en-GB") : NOTHING;
}

function ago(seconds) {
  if (seconds === null || seconds === undefined) return NOTHING;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s ago`;
  if (seconds < 3600) return `${(seconds / 60).toFixed(0)} min ago`;
  return seconds < 172_800 ? `${(seconds / 3600).toFixed(1)} h ago` : `${(seconds / 86_400).toFixed(0)} days ago`;
}

const OUTCOMES = {
  exact: "good", semantic: "near", joined: "good", partial: "near", miss: "plain", bypass: "plain", error: "bad",
};

function Badge({kind, children, title}) {
  return html`<span class=${`badge ${kind || "plain"}`} title=${title}>${children}</span>`;
}

function Outcome({value}) {
  return html`<${Badge} kind=${OUTCOMES[value] || "plain"}>${value || "unknown"}<//>`;
}

function Tile({label, value, note}) {
  return html`<div class="tile"><span class="tile-label">${label}</span><strong>${value}</strong>
    ${note && html`<span class="tile-note">${note}</span>`}</div>`;
}

function Field({label, hint, children, wide}) {
  return html`<label class=${wide ? "field wide" : "field"}><span>${label}</span>${children}
    ${hint && html`<small>${hint}</small>`}</label>`;
}

function Meter({value, label}) {
  const portion = Math.max(0, Math.min(1, value || 0));
  return html`<span class="meter" role="meter" aria-valuemin="0" aria-valuemax="100"
    aria-valuenow=${Math.round(100 * portion)} aria-label=${label}>
    <span class=${portion > 0.9 ? "full" : ""} style=${{width: `${100 * portion}%`}}></span></span>`;
}

function Empty({title, children}) {
  return html`<div class="empty"><strong>${title}</strong><p>${children}</p></div>`;
}

function Head({title, children}) {
  return html`<div class="head"><h1>${title}</h1><div class="head-more">${children}</div></div>`;
}

/** Say something to the user, also to a screen reader, for some seconds. */
const toasts = {
  listener: null,
  show(text, kind = "plain") {
    if (toasts.listener) toasts.listener({text, kind, id: Math.random()});
  },
};

function Toasts() {
  const [toast, setToast] = useState(null);
  useEffect(() => { toasts.listener = setToast; }, []);
  useEffect(() => {
    if (!toast) return undefined;
    const timer = setTimeout(() => setToast(null), 6000);
    return () => clearTimeout(timer);
  }, [toast]);
  return html`<div class="toasts" role="status" aria-live="polite">
    ${toast && html`<div class=${`toast ${toast.kind}`}>${toast.text}</div>`}</div>`;
}
