// The frame: pages by the address's hash, sign-in, colours, keys.

const PAGES = [
  ["playground", "Playground", Playground, "p", "M4 5h16v11H9l-5 4z"],
  ["requests", "Requests", Requests, "r", "M4 6h16M4 12h10M4 18h13"],
  ["live", "Live", Live, "l", "M3 13h4l3-8 4 14 3-6h4"],
  ["fleet", "Fleet", Fleet, "f", "M4 4h16v6H4zM4 14h16v6H4zM8 7h.01M8 17h.01"],
  ["cache", "Cache", CachePage, "c", "M4 6c0-4 16-4 16 0v12c0 4-16 4-16 0zM4 6c0 4 16 4 16 0M4 12c0 4 16 4 16 0"],
  ["alerts", "Alerts", Alerts, "a", "M6 16V11a6 6 0 0 1 12 0v5l2 2H4zM10 21h4"],
  ["plan", "Plan", Plan, "n", "M4 20V4M4 20h16M8 16v-4M13 16V8M18 16v-6"],
  ["usage", "Usage", Usage, "u", "M5 4h14v16l-3-2-2 2-2-2-2 2-2-2-3 2zM8 9h8M8 13h8"],
];
const THEME = "promptly.theme";
const READY_EVERY_MS = 5_000;

function pageNow() {
  const name = location.hash.replace(/^#\/?/, "").split(/[/?]/)[0];
  return PAGES.some(([each]) => each === name) ? name : "playground";
}

function useModels() {
  const token = useToken();
  const [state, setState] = useState({models: [], error: null});
  useEffect(() => {
    call("/v1/models").then((list) => setState({models: list.data.map((each) => each.id), error: null}))
      .catch((error) => setState({models: [], error}));
  }, [token]);
  return state;
}

function App() {
  const [page, setPage] = useState(pageNow);
  const [help, setHelp] = useState(false);
  const [, setTheme] = useState(themeOf);
  const token = useToken();
  const {models, error} = useModels();
  const who = useWho();
  useEffect(() => {
    const turn = () => setPage(pageNow());
    addEventListener("hashchange", turn);
    const keys = keyboard(() => setHelp((old) => !old));
    addEventListener("keydown", keys);
    return () => { removeEventListener("hashchange", turn); removeEventListener("keydown", keys); };
  }, []);
  const [, title, Page] = PAGES.find(([name]) => name === page);
  useEffect(() => { document.title = `${title} · Promptly`; }, [title]);
  const flip = () => {
    const theme = themeOf() === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = theme;
    localStorage.setItem(THEME, theme);
    setTheme(theme);
  };
  return html`<a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.querySelector("main").focus(); }}>Skip to the page</a>
    <header class="bar"><a class="brand" href="#/playground"><${Mark} />Promptly</a>
      <nav aria-label="Pages">${PAGES.map(([name, label, , key, path]) => html`<a href=${`#/${name}`} aria-current=${name === page ? "page" : undefined}
        title=${`${label} (g ${key})`}><svg viewBox="0 0 24 24" aria-hidden="true"><path d=${path} /></svg><span>${label}</span></a>`)}</nav>
      <div class="bar-more"><${Ready} />
        <button class="quiet" onClick=${flip} aria-label="Switch between light and dark" title="Light or dark">◐</button>
        <button class="quiet" onClick=${() => setHelp(true)} aria-label="Keys" title="Keys (?)">?</button>
        ${who && html`<span id="who" title=${`${who.tenant}, ${who.role}`}>${who.user || who.tenant}</span>`}
        ${(token || who) && html`<button class="quiet" id="sign-out" onClick=${() => session.signOut()}>Sign out</button>`}</div></header>
    <main tabindex="-1" class=${page}>${error && error.needsSignIn && page === "playground"
      ? html`<${SignIn} error=${error} what="This server asks for a key." />`
      : html`${error && !error.needsSignIn && html`<p class="error" role="alert">${error.message}</p>`}<${Page} key=${page} models=${models} />`}</main>
    ${help && html`<${Help} close=${() => setHelp(false)} />`}<${Toasts} />`;
}

function Mark() {
  return html`<svg class="mark" viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="8" /><path d="M8 9h16M8 16h10M8 23h5" /></svg>`;
}

function Ready() {
  const [state, setState] = useState({kind: "plain", text: "…"});
  useEffect(() => {
    let timer = null;
    const ask = async () => {
      try {
        if (!document.hidden) {
          await call("/ready");
          setState({kind: "good", text: "ready"});
        }
      } catch (error) {
        setState(error.status === 503 ? {kind: "near", text: "starting"} : {kind: "bad", text: "unreachable"});
      }
      timer = setTimeout(ask, READY_EVERY_MS);
    };
    ask();
    return () => clearTimeout(timer);
  }, []);
  return html`<${Badge} kind=${state.kind} title="Whether every model can answer">${state.text}<//>`;
}

function Help({close}) {
  const box = useRef(null);
  useEffect(() => { box.current.showModal(); }, []);
  return html`<dialog ref=${box} onClose=${close} aria-label="Keys"><h2>Keys</h2><dl class="known">
    ${PAGES.map(([, label, , key]) => html`<div><dt><kbd>g</kbd> <kbd>${key}</kbd></dt><dd>${label}</dd></div>`)}
    <div><dt><kbd>/</kbd></dt><dd>write a message</dd></div><div><dt><kbd>Enter</kbd></dt><dd>send it</dd></div>
    <div><dt><kbd>Esc</kbd></dt><dd>stop an answer, close a request</dd></div><div><dt><kbd>?</kbd></dt><dd>these keys</dd></div></dl>
    <button onClick=${() => box.current.close()}>Close</button></dialog>`;
}

/** `g` and a letter opens a page; only outside of fields. */
function keyboard(toggleHelp) {
  let leader = 0;
  return (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
    const page = PAGES.find(([, , , key]) => key === event.key);
    if (page && Date.now() - leader < 1500) location.hash = `#/${page[0]}`;
    else if (event.key === "?") toggleHelp();
    else if (event.key === "/" && document.getElementById("prompt")) {
      event.preventDefault();
      document.getElementById("prompt").focus();
    }
    leader = event.key === "g" ? Date.now() : 0;
  };
}

const remembered = localStorage.getItem(THEME);
if (remembered === "dark" || remembered === "light") document.documentElement.dataset.theme = remembered;
const place = document.getElementById("app");
place.replaceChildren();
render(html`<${App} />`, place);
