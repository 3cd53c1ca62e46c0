"""Checks a server through OpenAI's Python client: python check.py BASE_URL."""
import sys

import openai

base = sys.argv[1].rstrip("/") + "/v1"
client = openai.OpenAI(base_url=base, api_key="any", max_retries=0, timeout=120)
model = client.models.list().data[0].id
failures = 0


def check(name, ok, detail=""):
    global failures
    if not ok:
        failures += 1
        print(f"python: FAIL {name}: {detail}")


chat = dict(model=model, messages=[{"role": "user", "content": "Name three colours."}], temperature=0, max_completion_tokens=24)
whole = client.chat.completions.create(**chat)
check("chat", whole.choices[0].message.role == "assistant" and whole.choices[0].message.content, whole)
check("chat usage", whole.usage.completion_tokens <= 24 and whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens, whole.usage)

for include in (False, True):
    options = {"stream_options": {"include_usage": True}} if include else {}
    text, roles, finishes, usages, empty = "", 0, [], [], 0
    for chunk in client.chat.completions.create(stream=True, **options, **chat):
        if chunk.usage:
            usages.append(chunk.usage)
        if not chunk.choices:
            empty += 1
            continue
        choice = chunk.choices[0]
        roles += choice.delta.role == "assistant"
        text += choice.delta.content or ""
        if choice.finish_reason:
            finishes.append(choice.finish_reason)
    check("chat stream text", text == whole.choices[0].message.content, (text, whole.choices[0].message.content))
    check("chat stream role and finish", roles == 1 and finishes == [whole.choices[0].finish_reason], (roles, finishes))
    check("chat stream usage", len(usages) == include and empty == include, (usages, empty))
    if usages:
        check("chat stream usage equals", (usages[0].prompt_tokens, usages[0].completion_tokens) == (whole.usage.prompt_tokens, whole.usage.completion_tokens), usages)

plain = dict(model=model, prompt="The capital of France is", temperature=0, max_tokens=12, n=2, logprobs=2)
whole = client.completions.create(**plain)
texts = ["", ""]
for chunk in client.completions.create(stream=True, **plain):
    for choice in chunk.choices:
        texts[choice.index] += choice.text
check("completion", [c.text for c in whole.choices] == texts and texts[0], (whole, texts))
check("completion logprobs", all(len(c.logprobs.tokens) == len(c.logprobs.token_logprobs) > 0 for c in whole.choices), whole)
check("completion usage", whole.usage.completion_tokens == sum(len(c.logprobs.tokens) for c in whole.choices), whole.usage)

stopped = client.completions.create(model=model, prompt="1 2 3 4", temperature=0, max_tokens=24, stop=["9", "8"])
check("stop", "8" not in stopped.choices[0].text and "9" not in stopped.choices[0].text, stopped)


def expect(name, kind, call, **want):
    try:
        call()
    except kind as e:
        for k, v in want.items():
            check(f"{name} {k}", getattr(e, k) == v, f"{getattr(e, k)!r}, want {v!r}")
        return
    except Exception as e:  # noqa: BLE001
        check(name, False, repr(e))
        return
    check(name, False, "no error")


for stream in (False, True):
    expect("bad temperature", openai.BadRequestError, lambda: client.chat.completions.create(stream=stream, **{**chat, "temperature": -1}), param="temperature", status_code=400)
    expect("unknown model", openai.NotFoundError, lambda: client.chat.completions.create(stream=stream, **{**chat, "model": "no-such-model"}), code="model_not_found")
    expect("too long", openai.BadRequestError, lambda: client.completions.create(stream=stream, model=model, prompt="a b " * 30000), code="context_length_exceeded", param="prompt")

stream = client.chat.completions.create(stream=True, **{**chat, "max_completion_tokens": 400})
next(iter(stream))
stream.close()
check("after a cancelled stream", client.chat.completions.create(**chat).choices[0].message.content, "no answer")

print(f"python: openai {openai.__version__}, {'ok' if not failures else f'{failures} checks failed'}")
sys.exit(failures > 0)
