// What axe-core says of pages in headless Chromium, at two widths, light and dark: a line of json for each.
//
//     KERASBERT_NPM=FOLDER node accessibility.mjs PAGE.html ... > results.jsonl

import { createRequire } from "node:module";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

const need = createRequire(resolve(process.env.KERASBERT_NPM, "package.json"));
const browser = await need("playwright-core").chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu"],
});
try {
  for (const path of process.argv.slice(2))
    for (const width of [1100, 400])
      for (const colorScheme of ["light", "dark"]) {
        const page = await browser.newPage({ viewport: { width, height: 900 }, colorScheme });
        const outside = [];
        page.on("request", (request) => /^(file|data|blob):/.test(request.url()) || outside.push(request.url()));
        await page.goto(pathToFileURL(resolve(path)).href);
        await page.addScriptTag({ path: need.resolve("axe-core/axe.min.js") });
        const found = await page.evaluate(async () => {
          const { violations } = await globalThis.axe.run({ resultTypes: ["violations"] });
          const { scrollWidth, clientWidth } = document.documentElement;
          const said = violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 100)).join(" ")}`);
          return { violations: said, wider: scrollWidth - clientWidth };
        });
        console.log(JSON.stringify({ path, width, colorScheme, outside, ...found }));
        if (process.env.PICTURES && colorScheme === "light")
          await page.screenshot({ path: resolve(process.env.PICTURES, `${path.split("/").at(-1)}.${width}.png`), fullPage: true });
        await page.close();
      }
} finally {
  await browser.close();
}
