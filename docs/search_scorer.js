// How the search page ranks its hits: sections of recipes first, then reference pages, then pages about the internals.
// https://www.sphinx-doc.org/en/master/usage/configuration.html#confval-html_search_scorer
var Scorer = {
  score: ([page, , anchor, , score]) => score + (page === "how-to" ? (anchor ? 30 : 10) : /^(architecture|decisions|features|performance)$/.test(page) ? -5 : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
