// Searches the site as its page does: runs the worker of the theme and prints the pages found for each question.
// node search.js WORKER INDEX QUESTION...
const fs = require("fs");
const vm = require("vm");

const [worker, index, ...questions] = process.argv.slice(2);
const listeners = [];
const answers = [];
const scope = {
  console,
  addEventListener: (_, listener) => listeners.push(listener),
  postMessage: (message) => answers.push(message),
};
scope.self = scope;
vm.runInNewContext(fs.readFileSync(worker, "utf8"), scope);

async function ask(message) {
  for (const listener of listeners) {
    await listener({ data: message });
  }
  while (answers.length === 0) {
    await new Promise(setImmediate);
  }
  return answers.shift();
}

async function main() {
  const { config, docs } = JSON.parse(fs.readFileSync(index, "utf8"));
  await ask({ type: 0, data: { config, docs, options: { suggest: false } } });
  const found = [];
  for (const question of questions) {
    const { data } = await ask({ type: 2, data: question });
    found.push(data.items.map((sections) => sections[0].location.split("#")[0]));
  }
  process.stdout.write(JSON.stringify(found));
}

main();
