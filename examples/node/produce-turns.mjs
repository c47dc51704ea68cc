// Writes finished turns to Afterturn, as a frontend would:
//
//   npm ci && node produce-turns.mjs --brokers 127.0.0.1:9092 --chats 3 --turns 4
//
// The events follow schemas/generated/turn.recorded.schema.json. The key of a record is the chat's id, and the
// partition must be the one that murmur2 gives, which kafkajs 2.x does with its DefaultPartitioner.
import { parseArgs } from "node:util";
import { Kafka, Partitioners, logLevel } from "kafkajs";

const TOPIC = "chat.turns.v1";

const { values } = parseArgs({
  options: {
    brokers: { type: "string", default: "127.0.0.1:9092" },
    chats: { type: "string", default: "3" },
    turns: { type: "string", default: "4" },
    prefix: { type: "string", default: "node" },
  },
});

const talk = [
  ["Is the barograph ready?", "Two days early. Come before the cat does."],
  ["No, the Heron is 9.2 metres, not 9.5.", "Nine point two. I'll remember."],
  ["Merk dir bitte: wenn ich Deutsch schreibe, antworte auf Deutsch.", "„Gut. Ich gebe mir Mühe.“"],
  ["พี่พลอยทำข้าวซอยไหมครับ", "ทำค่ะ หกโมงครึ่งนะ"],
];

// Ids name what they are for: sending the same turn once more changes nothing.
function turnRecorded(chat, number) {
  const [asked, answered] = talk[number % talk.length];
  return {
    type: "turn.recorded",
    id: `${chat}-e${number}`,
    at: new Date(Date.UTC(2026, 10, 30, 10, 0, number)).toISOString(),
    chat: { id: chat, surface: "web", characters: ["mira"] },
    user: { id: "u1" },
    turn: { id: `t${number}` },
    messages: [
      { id: `m${2 * number}`, role: "user", author: "u1", text: asked },
      { id: `m${2 * number + 1}`, role: "assistant", author: "mira", text: answered },
    ],
    model: { name: "deepseek-v3.1", context_window: 65536 },
    usage: { prompt_tokens: 900 + 40 * number, completion_tokens: 20 },
  };
}

const kafka = new Kafka({
  clientId: "afterturn-example",
  brokers: values.brokers.split(","),
  logLevel: logLevel.ERROR,
});
const producer = kafka.producer({
  createPartitioner: Partitioners.DefaultPartitioner,
  allowAutoTopicCreation: false,
  maxInFlightRequests: 1, // a retry must not overtake the chat's next turn
});

await producer.connect();
try {
  for (let number = 0; number < Number(values.turns); number += 1) {
    const messages = Array.from({ length: Number(values.chats) }, (_, index) => {
      const chat = `${values.prefix}-${index}`;
      return { key: chat, value: JSON.stringify(turnRecorded(chat, number)) };
    });
    await producer.send({ topic: TOPIC, acks: -1, messages });
  }
  console.log(`${Number(values.chats) * Number(values.turns)} turns written to ${TOPIC}`);
} finally {
  await producer.disconnect();
}
