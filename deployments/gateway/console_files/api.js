// Requests to this gateway. The token lives in sessionStorage: it ends with the tab.

const TOKEN = "promptly.token";
/** Whether people sign in at a provider; the browser keeps their session, out of reach of scripts. */
const SIGNS_IN = document.body.dataset.signIn === "yes";

const session = {
  get token() { return sessionStorage.getItem(TOKEN) || ""; },
  listeners: new Set(),
  signIn(token) { sessionStorage.setItem(TOKEN, token); session.changed(); },
  signOut() {
    sessionStorage.removeItem(TOKEN);
    session.changed();
    if (SIGNS_IN) send("/sign-out", {method: "POST"}).catch(() => {}).finally(() => location.reload());
  },
  changed() { for (const listener of session.listeners) listener(session.token); },
};

function useToken() {
  const [token, setToken] = useState(session.token);
  useEffect(() => {
    session.listeners.add(setToken);
    return () => session.listeners.delete(setToken);
  }, []);
  return token;
}

/** Who is signed in; null without a session or key. */
function useWho() {
  const token = useToken();
  const [who, setWho] = useState(null);
  useEffect(() => { if (SIGNS_IN) call("/v1/me").then(setWho, () => setWho(null)); }, [token]);
  return who;
}

class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
  get needsSignIn() { return this.status === 401 || this.status === 403; }
}

function authorized(headers = {}) {
  return session.token ? {...headers, authorization: `Bearer ${session.token}`} : headers;
}

async function send(path, {method = "GET", body, headers, signal} = {}) {
  const options = {method, headers: authorized(headers), signal, credentials: SIGNS_IN ? "same-origin" : "omit"};
  // No `cache` option: the browser would send `Cache-Control`, which is the request's own cache control here.
  if (body !== undefined) {
    options.headers = {"content-type": "application/json", ...options.headers};
    options.body = JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(new URL(path.replace(/^\//, ""), ROOT), options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "unreachable", "The gateway did not answer.");
  }
  if (!response.ok) throw await errorOf(response);
  return response;
}

async function errorOf(response) {
  let said = null;
  try { said = await response.json(); } catch { /* not JSON: the status says it */ }
  const error = (said && said.error) || {};
  return new ApiError(response.status, error.code, error.message || `Status ${response.status}.`);
}

async function call(path, options) {
  return (await send(path, options)).json();
}

/** What `path` answers, asked again every `period` ms while the page is visible. */
function usePoll(path, period) {
  const token = useToken();
  const [state, setState] = useState({data: null, error: null, at: 0});
  const [round, setRound] = useState(0);
  useEffect(() => {
    if (path === null) return undefined;
    const controller = new AbortController();
    let timer = null, isFirst = true;
    const ask = async () => {
      if (!document.hidden || isFirst) {
        isFirst = false;
        try {
          const data = await call(path, {signal: controller.signal});
          setState({data, error: null, at: Date.now()});
        } catch (error) {
          if (error.name === "AbortError") return;
          setState((old) => ({...old, error}));
          if (error.needsSignIn || error.status === 404) return;
        }
      }
      if (period) timer = setTimeout(ask, period);
    };
    ask();
    return () => { controller.abort(); clearTimeout(timer); };
  }, [path, period, token, round]);
  return {...state, again: useCallback(() => setRound((old) => old + 1), [])};
}

function SignIn({error, what}) {
  const [token, setToken] = useState("");
  const had = useToken();
  const submit = (event) => {
    event.preventDefault();
    if (/^[\x21-\x7e]+$/.test(token.trim())) session.signIn(token.trim());
    else toasts.show("A token has printable ASCII characters only.", "bad");
  };
  const refused = had && error;
  return html`<form class="sign-in card" onSubmit=${submit}>
    <h2>Sign in</h2>
    ${SIGNS_IN && html`<p><a id="sign-in" href=${new URL(`sign-in?page=${pageNow()}`, ROOT).href}>Sign in with your account</a></p>`}
    <p>${what} The start of the server prints the admin token and the file that holds it; where API keys are used, an
      admin's key opens it too.</p>
    <label class="field wide"><span>Admin token or API key</span>
      <input type="password" autocomplete="off" spellcheck=${false} value=${token} id="token"
        aria-invalid=${refused ? "true" : "false"} aria-describedby="token-note"
        onInput=${(event) => setToken(event.target.value)} /></label>
    ${refused && html`<p class="error" role="alert">${error.message}</p>`}
    <div class="row"><button class="primary" type="submit">Sign in</button>
      <small id="token-note">It stays in this tab and is sent to this server only.</small></div>
  </form>`;
}

/** A part of a page that needs `poll`'s data: signs in, says what is missing, or shows `children(data)`. */
function Loaded({poll, what, missing, children}) {
  if (poll.error && poll.error.needsSignIn) return html`<${SignIn} error=${poll.error} what=${what} />`;
  if (poll.error && poll.error.status === 404) {
    return html`<${Empty} title="Not on this server">${missing || poll.error.message}<//>`;
  }
  if (poll.data === null && poll.error) {
    return html`<div class="card"><p class="error" role="alert">${poll.error.message}</p>
      <button onClick=${poll.again}>Try again</button></div>`;
  }
  if (poll.data === null) return html`<p class="loading" aria-busy="true">Loading …</p>`;
  return html`${poll.error && html`<p class="error" role="alert">${poll.error.message} Shown is what came last.</p>`}
    ${children(poll.data)}`;
}
