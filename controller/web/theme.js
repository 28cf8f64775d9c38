// SPDX-License-Identifier: Apache-2.0
// The chosen colours, before anything is drawn.
const chosen = localStorage.getItem("theme");
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
