// Before everything else: the theme, so that the first paint has it, and the requests whose answers the page needs first,
// so that they are on their way while its modules are loaded. `api.js` takes the answers. `?theme=dark` wins.
{
  const root = document.documentElement;
  const query = new URLSearchParams(location.search);
  const asked = query.get("theme") ?? localStorage.getItem("rival-theme");
  if (asked) root.dataset.theme = asked;

  const here = location.pathname.slice(new URL(document.baseURI).pathname.length);
  const paths = ["me"];
  // The shell says whether its reader is logged in: without a login these would be refused.
  if ("session" in root.dataset) {
    if (/^runs\/[^/]+$/.test(here)) paths.push(`${here}?fold=20`, `${here}/${query.has("at") ? `past?${new URLSearchParams({ id: query.get("at") })}` : "why"}`);
    else if (here === "runs" && !location.search) paths.push("runs?limit=50", "runs/counts");
    else if (/^(fleet|workflows|schedules)$/.test(here)) paths.push(here);
  }
  const ask = (path) => {
    const answer = fetch(`api/v1/${path}`, { headers: { Accept: "application/json" }, cache: "no-store" });
    answer.catch(() => {});
    return [path, answer];
  };
  globalThis.rivalEarly = new Map(paths.map(ask));
}
