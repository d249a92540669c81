// Shows recipes above the hits of the search page. Sphinx finds whole pages that contain all words of a query; a recipe
// needs some of them, and rare words count more. The build writes `recipes`, the sections of how-to.rst, in front of
// this code.
const SMALL_WORDS = new Set("a an and are at be by can do for from how i in is it its my of on or that the this to what when which with".split(" "));
const SHOWN = 3;

const wordsOf = (text) => [...new Set(text.toLowerCase().match(/[a-z0-9]+/g) ?? [])].filter((word) => !SMALL_WORDS.has(word));
const areAlike = (one, other) => one === other || (Math.min(one.length, other.length) > 3 && (one.startsWith(other) || other.startsWith(one)));
const stemOf = (word) => (word.length > 5 ? word.replace(/(ies|ing|ed|es|s|y)$/, "") : word.replace(/s$/, ""));

function findRecipes(query) {
  const scores = new Map();
  for (const word of wordsOf(query).map(stemOf)) {
    const has = (text) => wordsOf(text).some((other) => areAlike(word, stemOf(other)));
    const found = recipes.map((recipe) => [recipe, has(recipe.names) ? 2 : has(recipe.text) ? 1 : 0]).filter(([, score]) => score);
    for (const [recipe, score] of found) {
      scores.set(recipe, (scores.get(recipe) ?? 0) + score * Math.log(1 + recipes.length / found.length));
    }
  }
  return [...scores.keys()].sort((one, other) => scores.get(other) - scores.get(one)).slice(0, SHOWN);
}

if (typeof document !== "undefined") {
  document.addEventListener("DOMContentLoaded", () => {
    const found = findRecipes(new URLSearchParams(location.search).get("q") ?? "");
    const list = document.createElement("ul");
    for (const { title, anchor } of found) {
      const link = Object.assign(document.createElement("a"), { href: `how-to.html#${anchor}`, textContent: title });
      list.appendChild(document.createElement("li")).append(link);
    }
    const head = Object.assign(document.createElement("h2"), { textContent: "Recipes" });
    if (found.length) document.getElementById("search-results").before(head, list);
  });
}
