// Checks a server through OpenAI's JavaScript client: node check.mjs BASE_URL.
import OpenAI from 'openai';
import { VERSION } from 'openai/version';

const client = new OpenAI({ baseURL: process.argv[2].replace(/\/$/, '') + '/v1', apiKey: 'any', maxRetries: 0, timeout: 120000 });
const model = (await client.models.list()).data[0].id;
let failures = 0;

function check(name, ok, detail) {
  if (!ok) {
    failures++;
    console.log(`node: FAIL ${name}:`, detail);
  }
}

const chat = { model, messages: [{ role: 'user', content: [{ type: 'text', text: 'Name three ' }, { type: 'text', text: 'colours.' }] }], temperature: 0, max_completion_tokens: 24 };
let whole = await client.chat.completions.create(chat);
const answer = whole.choices[0];
check('chat', answer.message.role === 'assistant' && answer.message.content, whole);
check('chat usage', whole.usage.total_tokens === whole.usage.prompt_tokens + whole.usage.completion_tokens && whole.usage.completion_tokens <= 24, whole.usage);

for (const include of [false, true]) {
  let text = '', roles = 0, empty = 0;
  const finishes = [], usages = [];
  const options = include ? { stream_options: { include_usage: true } } : {};
  for await (const chunk of await client.chat.completions.create({ ...chat, ...options, stream: true })) {
    if (chunk.usage) usages.push(chunk.usage);
    if (chunk.choices.length === 0) {
      empty++;
      continue;
    }
    const choice = chunk.choices[0];
    if (choice.delta.role === 'assistant') roles++;
    text += choice.delta.content ?? '';
    if (choice.finish_reason) finishes.push(choice.finish_reason);
  }
  check('chat stream text', text === answer.message.content, [text, answer.message.content]);
  check('chat stream role and finish', roles === 1 && finishes.length === 1 && finishes[0] === answer.finish_reason, [roles, finishes]);
  check('chat stream usage', usages.length === Number(include) && empty === Number(include), [usages, empty]);
  if (include) check('chat stream usage equals', usages[0].prompt_tokens === whole.usage.prompt_tokens && usages[0].completion_tokens === whole.usage.completion_tokens, usages);
}

// The client's own collector of streams.
const runner = client.chat.completions.stream(chat);
check('chat stream collector', (await runner.finalContent()) === answer.message.content, await runner.finalContent());

const plain = { model, prompt: 'The capital of France is', temperature: 0, max_tokens: 12, n: 2, logprobs: 2 };
whole = await client.completions.create(plain);
const texts = ['', ''];
for await (const chunk of await client.completions.create({ ...plain, stream: true })) {
  for (const choice of chunk.choices) texts[choice.index] += choice.text;
}
check('completion', whole.choices.every((c, i) => c.text === texts[i]) && texts[0], [whole, texts]);
check('completion usage', whole.usage.completion_tokens === whole.choices.reduce((n, c) => n + c.logprobs.tokens.length, 0), whole.usage);

async function expect(name, call, want) {
  try {
    const r = await call();
    if (r[Symbol.asyncIterator]) for await (const _ of r);
    check(name, false, 'no error');
  } catch (e) {
    for (const [k, v] of Object.entries(want)) check(`${name} ${k}`, e[k] === v, [e[k], v]);
  }
}

for (const stream of [false, true]) {
  await expect('bad temperature', () => client.chat.completions.create({ ...chat, stream, temperature: -1 }), { status: 400, param: 'temperature' });
  await expect('unknown model', () => client.chat.completions.create({ ...chat, stream, model: 'no-such-model' }), { status: 404, code: 'model_not_found' });
  await expect('too long', () => client.completions.create({ model, stream, prompt: 'a b '.repeat(30000) }), { status: 400, code: 'context_length_exceeded' });
}

const cut = await client.chat.completions.create({ ...chat, stream: true, max_completion_tokens: 400 });
for await (const _ of cut) break; // leaving the loop cancels the request
check('after a cancelled stream', (await client.chat.completions.create(chat)).choices[0].message.content, 'no answer');

console.log(`node: openai ${VERSION}, ${failures ? `${failures} checks failed` : 'ok'}`);
process.exit(failures > 0 ? 1 : 0);
