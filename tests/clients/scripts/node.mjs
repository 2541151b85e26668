// Clients of Node, each as its documentation begins. Prints what became of each feature, as JSON.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const { PROMPTLY_URL: URL_, PROMPTLY_KEY: KEY, PROMPTLY_MODULES: MODULES } = process.env;
const resolve = createRequire(`${MODULES}/`).resolve;
const load = (name) => import(pathToFileURL(resolve(name)));
const V1 = `${URL_}/v1`;
const MODEL = "sim";
const EMBEDDER = "words";
const HI = [{ role: "user", content: "Say something." }];
const QUESTION = "What is the weather in Paris?";
const ANSWER = "It is sunny in Paris.";
const SCHEMA = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };

async function gpt() {
  const { default: OpenAI } = await load("openai");
  return new OpenAI({ baseURL: V1, apiKey: KEY, maxRetries: 0 });
}

const openai = {
  async text() {
    const client = await gpt();
    const chat = await client.chat.completions.create({ model: MODEL, messages: HI });
    assert.ok(chat.choices[0].message.content);
  },
  async stream() {
    const client = await gpt();
    let text = "";
    for await (const chunk of await client.chat.completions.create({ model: MODEL, messages: HI, stream: true }))
      text += chunk.choices[0]?.delta?.content ?? "";
    assert.ok(text);
  },
  async tools() {
    const weather = { name: "weather", parameters: SCHEMA, parse: JSON.parse, function: ({ city }) => `sunny in ${city}` };
    const runner = (await gpt()).chat.completions.runTools({
      model: MODEL,
      messages: [{ role: "user", content: QUESTION }],
      tools: [{ type: "function", function: { ...weather, description: "The weather in a city." } }],
    });
    assert.equal(await runner.finalContent(), ANSWER);
  },
  async structured() {
    const { zodResponseFormat } = await load("openai/helpers/zod");
    const { z } = await load("zod");
    const Place = z.object({ city: z.string(), degrees: z.int() });
    const chat = await (await gpt()).chat.completions.parse({ model: MODEL, messages: HI, response_format: zodResponseFormat(Place, "place") });
    assert.deepEqual(chat.choices[0].message.parsed, { city: "word", degrees: 1 });
  },
  async embeddings() {
    const { data } = await (await gpt()).embeddings.create({ model: EMBEDDER, input: ["one", "two"] });
    assert.deepEqual(data.map((each) => each.embedding.length), [32, 32]);
  },
};

const gptResponses = {
  async text() {
    const response = await (await gpt()).responses.create({ model: MODEL, input: "Say something." });
    assert.ok(response.output_text);
  },
  async stream() {
    const stream = (await gpt()).responses.stream({ model: MODEL, input: "Say something." });
    let said = "";
    stream.on("response.output_text.delta", (event) => (said += event.delta));
    assert.equal((await stream.finalResponse()).output_text, said);
    assert.ok(said);
  },
  async tools() {
    const client = await gpt();
    const tools = [{ type: "function", name: "weather", parameters: SCHEMA, strict: false }];
    const first = await client.responses.create({ model: MODEL, input: QUESTION, tools });
    const [call] = first.output.filter((item) => item.type === "function_call");
    assert.deepEqual(JSON.parse(call.arguments), { city: "Paris" });
    const result = { type: "function_call_output", call_id: call.call_id, output: "sunny in Paris" };
    const end = await client.responses.create({ model: MODEL, input: [result], tools, previous_response_id: first.id });
    assert.equal(end.output_text, ANSWER);
  },
  async structured() {
    const { zodTextFormat } = await load("openai/helpers/zod");
    const { z } = await load("zod");
    const format = zodTextFormat(z.object({ city: z.string(), degrees: z.int() }), "place");
    const response = await (await gpt()).responses.parse({ model: MODEL, input: "Say something.", text: { format } });
    assert.deepEqual(response.output_parsed, { city: "word", degrees: 1 });
  },
};

async function claude() {
  const { default: Anthropic } = await load("@anthropic-ai/sdk");
  return new Anthropic({ baseURL: URL_, apiKey: KEY, maxRetries: 0 });
}

const anthropic = {
  async text() {
    const message = await (await claude()).messages.create({ model: MODEL, max_tokens: 500, messages: HI });
    assert.ok(message.content[0].text);
  },
  async stream() {
    const stream = (await claude()).messages.stream({ model: MODEL, max_tokens: 500, messages: HI });
    let text = "";
    stream.on("text", (part) => (text += part));
    assert.equal(await stream.finalText(), text);
  },
  async tools() {
    const stream = (await claude()).messages.stream({
      model: MODEL,
      max_tokens: 500,
      messages: [{ role: "user", content: QUESTION }],
      tools: [{ name: "weather", input_schema: SCHEMA }],
    });
    const message = await stream.finalMessage();
    const [call] = message.content.filter((block) => block.type === "tool_use");
    assert.deepEqual(call.input, { city: "Paris" });
    assert.equal(message.stop_reason, "tool_use");
    const { betaTool } = await load("@anthropic-ai/sdk/helpers/beta/json-schema");
    const weather = betaTool({
      name: "weather",
      description: "The weather in a city.",
      inputSchema: SCHEMA,
      run: ({ city }) => `sunny in ${city}`,
    });
    const end = await (await claude()).beta.messages.toolRunner({
      model: MODEL,
      max_tokens: 500,
      messages: [{ role: "user", content: QUESTION }],
      tools: [weather],
    });
    assert.equal(end.content[0].text, ANSWER);
  },
  async structured() {
    const { zodOutputFormat } = await load("@anthropic-ai/sdk/helpers/zod");
    const { z } = await load("zod");
    const format = zodOutputFormat(z.object({ city: z.string(), degrees: z.int() }));
    const message = await (await claude()).messages.parse({ model: MODEL, max_tokens: 500, messages: HI, output_config: { format } });
    assert.deepEqual(message.parsed_output, { city: "word", degrees: 1 });
  },
};

// The AI SDK: text, stream, tools and objects are the same calls for every provider.
function sdk(model, embedder) {
  return {
    async text() {
      const { generateText } = await load("ai");
      assert.ok((await generateText({ model: await model(), prompt: "Say something.", maxRetries: 0 })).text);
    },
    async stream() {
      const { streamText } = await load("ai");
      const stream = streamText({ model: await model(), prompt: "Say something.", maxRetries: 0, onError({ error }) { throw error; } });
      let text = "";
      for await (const part of stream.textStream) text += part;
      assert.ok(text);
    },
    async tools() {
      const { generateText, streamText, tool, isStepCount, stepCountIs } = await load("ai");
      const { z } = await load("zod");
      const weather = tool({
        description: "The weather in a city.",
        inputSchema: z.object({ city: z.string() }),
        execute: async ({ city }) => `sunny in ${city}`,
      });
      const asked = { tools: { weather }, stopWhen: (isStepCount ?? stepCountIs)(5), prompt: QUESTION, maxRetries: 0 };
      const done = await generateText({ model: await model(), ...asked });
      assert.equal(done.text, ANSWER);
      assert.equal(done.steps[0].toolResults[0].output, "sunny in Paris");
      assert.equal(await streamText({ model: await model(), ...asked }).text, ANSWER);
    },
    async structured() {
      const { generateText, Output } = await load("ai");
      const { z } = await load("zod");
      const output = Output.object({ schema: z.object({ city: z.string(), degrees: z.int() }) });
      const done = await generateText({ model: await model(), output, prompt: "Say something.", maxRetries: 0 });
      assert.deepEqual(done.output, { city: "word", degrees: 1 });
    },
    ...(embedder && {
      async embeddings() {
        const { embed } = await load("ai");
        const { embedding } = await embed({ model: await embedder(), value: "one two", maxRetries: 0 });
        assert.equal(embedding.length, 32);
      },
    }),
  };
}

const responses = async () => (await load("@ai-sdk/openai")).createOpenAI({ baseURL: V1, apiKey: KEY });
const compatible = async () =>
  (await load("@ai-sdk/openai-compatible")).createOpenAICompatible({ name: "promptly", baseURL: V1, apiKey: KEY, supportsStructuredOutputs: true });
const messages = async () => (await load("@ai-sdk/anthropic")).createAnthropic({ baseURL: V1, apiKey: KEY });

const CLIENTS = {
  "openai-node": openai,
  "openai-node-responses": gptResponses,
  "anthropic-node": anthropic,
  "@ai-sdk/openai": sdk(async () => (await responses())(MODEL), async () => (await responses()).textEmbeddingModel(EMBEDDER)),
  "@ai-sdk/openai-compatible": sdk(async () => (await compatible())(MODEL), async () => (await compatible()).textEmbeddingModel(EMBEDDER)),
  "@ai-sdk/anthropic": sdk(async () => (await messages())(MODEL)),
};

for (const client of process.argv.slice(2)) {
  const outcomes = {};
  for (const [name, feature] of Object.entries(CLIENTS[client])) {
    try {
      await feature();
      outcomes[name] = "yes";
    } catch (error) {
      console.error(client, name, error);
      outcomes[name] = String(error);
    }
  }
  console.log(JSON.stringify([client, outcomes]));
}
process.exit(0);
