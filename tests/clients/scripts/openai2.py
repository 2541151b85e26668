"""Clients that want version 2 of ``openai``, each as its documentation begins."""

from features import ABOUT, ANSWER, EMBEDDER, KEY, MODEL, QUESTION, SCHEMA, V1, main, weather
from pydantic import BaseModel

HI = [{"role": "user", "content": "Say something."}]


class Place(BaseModel):
    """Where it is, and how warm."""

    city: str
    degrees: int


# instructor: TOOLS is its default mode


def instructor_client():
    import instructor
    import openai

    return instructor.from_openai(openai.OpenAI(base_url=V1, api_key=KEY, max_retries=0))


def instructor_text():
    chat = instructor_client().create(model=MODEL, messages=HI, response_model=None)
    assert chat.choices[0].message.content


def instructor_structured():
    place = instructor_client().create(model=MODEL, messages=HI, response_model=Place)
    assert (place.city, place.degrees) == ("word", 1)


def instructor_stream():
    parts = list(instructor_client().create_partial(model=MODEL, messages=HI, response_model=Place))
    assert parts[-1].city == "word"


# LlamaIndex


def llama_model():
    from llama_index.llms.openai_like import OpenAILike

    return OpenAILike(
        model=MODEL,
        api_base=V1,
        api_key=KEY,
        is_chat_model=True,
        is_function_calling_model=True,
        context_window=30_000,
        max_retries=0,
    )


def llama_text():
    assert llama_model().complete("Say something.").text


def llama_stream():
    assert list(llama_model().stream_complete("Say something."))[-1].text


def llama_tools():
    import asyncio

    from llama_index.core.agent.workflow import FunctionAgent

    async def run():
        return str(await FunctionAgent(tools=[weather], llm=llama_model()).run(QUESTION))

    assert asyncio.run(run()) == ANSWER


def llama_structured():
    assert llama_model().as_structured_llm(Place).complete("Say something.").raw == Place(
        city="word", degrees=1
    )


def llama_embeddings():
    from llama_index.embeddings.openai import OpenAIEmbedding

    model = OpenAIEmbedding(model_name=EMBEDDER, api_base=V1, api_key=KEY, max_retries=0)
    assert len(model.get_text_embedding("one two")) == 32


# LiteLLM as a client


def lite(**options):
    import litellm

    return litellm.completion(model=f"openai/{MODEL}", api_base=V1, api_key=KEY, num_retries=0, **options)


def lite_text():
    assert lite(messages=HI).choices[0].message.content


def lite_stream():
    chunks = lite(messages=HI, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


def lite_tools():
    ask = [{"role": "user", "content": QUESTION}]
    function = {"name": "weather", "description": ABOUT, "parameters": SCHEMA}
    tools = [{"type": "function", "function": function}]
    message = lite(messages=ask, tools=tools).choices[0].message
    (call,) = message.tool_calls
    assert call.function.arguments == '{"city": "Paris"}'
    result = {"role": "tool", "tool_call_id": call.id, "content": weather("Paris")}
    end = lite(messages=[*ask, message, result], tools=tools)
    assert end.choices[0].message.content == ANSWER


def lite_structured():
    message = lite(messages=HI, response_format=Place).choices[0].message
    assert Place.model_validate_json(message.content) == Place(city="word", degrees=1)


def lite_embeddings():
    import litellm

    done = litellm.embedding(model=f"openai/{EMBEDDER}", input=["one"], api_base=V1, api_key=KEY)
    assert len(done.data[0]["embedding"]) == 32


CLIENTS = {
    "instructor": {
        "text": instructor_text,
        "stream": instructor_stream,
        "structured": instructor_structured,
    },
    "llama-index": {
        "text": llama_text,
        "stream": llama_stream,
        "tools": llama_tools,
        "structured": llama_structured,
        "embeddings": llama_embeddings,
    },
    "litellm": {
        "text": lite_text,
        "stream": lite_stream,
        "tools": lite_tools,
        "structured": lite_structured,
        "embeddings": lite_embeddings,
    },
}

main(CLIENTS)
