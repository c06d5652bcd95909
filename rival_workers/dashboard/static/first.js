// Sets the theme before the first paint: light, dark, or what the system prefers. `?theme=dark` wins.
{
  const asked = new URLSearchParams(location.search).get("theme") ?? localStorage.getItem("rival-theme");
  if (asked) document.documentElement.dataset.theme = asked;
}
