// A model's text as HTML. It is hostile: prompts and documents can make a model write anything.
// Three barriers: raw HTML is shown as text, DOMPurify lets few elements and attributes through, and the page's
// policy forbids scripts, styles and requests to other hosts.

const MARKDOWN = new marked.Marked({gfm: true, breaks: true, async: false});
const escapeText = (text) => text.replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);
MARKDOWN.use({renderer: {
  html: ({text}) => escapeText(text),
  image: ({href, text}) => `<em>[image: ${escapeText(text || "")}]</em> <code>${escapeText(href || "")}</code>`,
  checkbox: ({checked}) => (checked ? "☑ " : "☐ "),
}});

const ALLOWED = {
  ALLOWED_TAGS: ["a", "b", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "i",
    "li", "ol", "p", "pre", "s", "strong", "sub", "sup", "table", "tbody", "td", "th", "thead", "tr", "ul"],
  ALLOWED_ATTR: ["href", "start", "align"],
  ALLOWED_URI_REGEXP: /^https?:\/\//i,
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName !== "A") return;
  node.setAttribute("rel", "noopener noreferrer nofollow");
  node.setAttribute("target", "_blank");
  if (node.hasAttribute("href")) node.setAttribute("title", node.getAttribute("href"));
});

function safeFragment(text) {
  return DOMPurify.sanitize(MARKDOWN.parse(text), ALLOWED);
}

const RENDER_EVERY_MS = 60;

function Markdown({text, live}) {
  const box = useRef(null);
  const last = useRef({at: 0, timer: null});
  useEffect(() => {
    const paint = () => {
      last.current = {at: performance.now(), timer: null};
      if (box.current) box.current.replaceChildren(safeFragment(text));
    };
    clearTimeout(last.current.timer);
    const wait = last.current.at + RENDER_EVERY_MS - performance.now();
    if (live && wait > 0) last.current.timer = setTimeout(paint, wait);
    else paint();
    return () => clearTimeout(last.current.timer);
  }, [text, live]);
  return html`<div class="markdown" ref=${box}></div>`;
}
