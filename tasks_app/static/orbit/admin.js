// Copies the text of an element; everything works without it.
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-orbit-copy]");
  if (!button) return;
  const text = document.getElementById(button.dataset.orbitCopy).textContent;
  navigator.clipboard.writeText(text).then(() => button.classList.add("orbit-copied"));
});
// A page that goes on by itself: a bulk operation in progress, a page that shows the present.
const following = document.querySelector("form[data-orbit-follow]");
if (following) setTimeout(() => following.submit(), 400);
const live = document.querySelector("[data-orbit-reload-seconds]");
if (live) setTimeout(() => location.reload(), 1000 * Number(live.dataset.orbitReloadSeconds));
