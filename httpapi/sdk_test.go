package httpapi

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// These tests talk to the server through OpenAI's own Go client, unmodified.

func (s *testServer) sdk() openai.Client {
	return openai.NewClient(option.WithBaseURL("http://"+s.addr+"/v1/"), option.WithAPIKey("any"), option.WithMaxRetries(0))
}

func sdkContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 3*liveness)
	t.Cleanup(cancel)
	return ctx
}

func TestOpenAIClientChats(t *testing.T) {
	s := startServer(t)
	client, ctx := s.sdk(), sdkContext(t)
	params := openai.ChatCompletionNewParams{
		Model: "tiny", Temperature: openai.Float(0), Seed: openai.Int(1), MaxCompletionTokens: openai.Int(12), N: openai.Int(2),
		Logprobs: openai.Bool(true), TopLogprobs: openai.Int(2),
		Messages: []openai.ChatCompletionMessageParamUnion{
			openai.SystemMessage("Be brief."),
			openai.UserMessage([]openai.ChatCompletionContentPartUnionParam{openai.TextContentPart("Say "), openai.TextContentPart("hello.")}),
		},
	}
	whole, err := client.Chat.Completions.New(ctx, params, option.WithJSONSet("ignore_eos", true))
	if err != nil {
		t.Fatal(err)
	}
	if len(whole.Choices) != 2 || whole.Choices[0].FinishReason != "length" || whole.Choices[0].Message.Role != "assistant" ||
		whole.Usage.CompletionTokens != 24 || whole.Usage.TotalTokens != whole.Usage.PromptTokens+24 || len(whole.Choices[1].Logprobs.Content) != 12 {
		t.Errorf("answer %s", whole.RawJSON())
	}
	params.StreamOptions.IncludeUsage = openai.Bool(true)
	stream := client.Chat.Completions.NewStreaming(ctx, params, option.WithJSONSet("ignore_eos", true))
	acc := openai.ChatCompletionAccumulator{}
	finished := 0
	for stream.Next() {
		if !acc.AddChunk(stream.Current()) {
			t.Fatalf("the accumulator refuses %s", stream.Current().RawJSON())
		}
		for _, c := range stream.Current().Choices {
			if c.FinishReason != "" {
				finished++
			}
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if finished != 2 || len(acc.Choices) != 2 || acc.Usage.CompletionTokens != 24 || acc.Usage.PromptTokens != whole.Usage.PromptTokens {
		t.Errorf("%d finishes, %d choices, usage %+v", finished, len(acc.Choices), acc.Usage)
	}
	for i, c := range acc.Choices {
		if c.Message.Content != whole.Choices[i].Message.Content || len(c.Logprobs.Content) != 12 || c.FinishReason != "length" {
			t.Errorf("choice %d: streamed %q (%s, %d logprobs), collected %q", i, c.Message.Content, c.FinishReason, len(c.Logprobs.Content), whole.Choices[i].Message.Content)
		}
	}
}

func TestOpenAIClientCompletes(t *testing.T) {
	s := startServer(t)
	client, ctx := s.sdk(), sdkContext(t)
	params := openai.CompletionNewParams{
		Model: "alias", Temperature: openai.Float(0), MaxTokens: openai.Int(6), Echo: openai.Bool(true), Logprobs: openai.Int(1),
		Prompt: openai.CompletionNewParamsPromptUnion{OfArrayOfStrings: []string{"one two", "three"}},
	}
	whole, err := client.Completions.New(ctx, params, option.WithJSONSet("ignore_eos", true))
	if err != nil {
		t.Fatal(err)
	}
	if len(whole.Choices) != 2 || whole.Usage.CompletionTokens != 12 || whole.Model != "alias" {
		t.Errorf("answer %s", whole.RawJSON())
	}
	texts := make([]string, 2)
	stream := client.Completions.NewStreaming(ctx, params, option.WithJSONSet("ignore_eos", true))
	for stream.Next() {
		for _, c := range stream.Current().Choices {
			texts[c.Index] += c.Text
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	for i, c := range whole.Choices {
		if c.Text != texts[i] || len(c.Logprobs.Tokens) != len(c.Logprobs.TextOffset) || len(c.Logprobs.Tokens) < 7 {
			t.Errorf("choice %d: collected %q, streamed %q, %d tokens with logprobs", i, c.Text, texts[i], len(c.Logprobs.Tokens))
		}
	}
	models, err := client.Models.List(ctx)
	if err != nil || len(models.Data) != 2 || models.Data[0].ID != "tiny" {
		t.Errorf("models %+v, %v", models, err)
	}
	if m, err := client.Models.Get(ctx, "alias"); err != nil || m.ID != "alias" {
		t.Errorf("model %+v, %v", m, err)
	}
}

func TestOpenAIClientSeesErrors(t *testing.T) {
	s := startServer(t, func(u *setup) { u.http.APIKey = "any" })
	client, ctx := s.sdk(), sdkContext(t)
	chat := func(change func(*openai.ChatCompletionNewParams), o ...option.RequestOption) *openai.Error {
		t.Helper()
		p := openai.ChatCompletionNewParams{Model: "tiny", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hi")}}
		change(&p)
		_, err := client.Chat.Completions.New(ctx, p, o...)
		stream := client.Chat.Completions.NewStreaming(ctx, p, o...)
		for stream.Next() {
			t.Errorf("an event before the error: %s", stream.Current().RawJSON())
		}
		var a, b *openai.Error
		if !errors.As(err, &a) || !errors.As(stream.Err(), &b) || a.StatusCode != b.StatusCode || a.Message != b.Message {
			t.Fatalf("collected: %v, streamed: %v", err, stream.Err())
		}
		return a
	}
	if e := chat(func(p *openai.ChatCompletionNewParams) { p.Temperature = openai.Float(-1) }); e.StatusCode != 400 || e.Param != "temperature" || e.Type != "BadRequestError" {
		t.Errorf("%+v", e)
	}
	if e := chat(func(p *openai.ChatCompletionNewParams) { p.Model = "gpt-none" }); e.StatusCode != http.StatusNotFound || e.Code != "model_not_found" {
		t.Errorf("%+v", e)
	}
	if e := chat(func(*openai.ChatCompletionNewParams) {}, option.WithAPIKey("wrong")); e.StatusCode != http.StatusUnauthorized {
		t.Errorf("%+v", e)
	}
}

// A context that ends takes the connection with it, and so the request.
func TestOpenAIClientCancels(t *testing.T) {
	s := startServer(t)
	client := s.sdk()
	ctx, cancel := context.WithCancel(sdkContext(t))
	stream := client.Chat.Completions.NewStreaming(ctx, openai.ChatCompletionNewParams{
		Model: "tiny", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hi")},
	}, option.WithJSONSet("ignore_eos", true))
	if !stream.Next() {
		t.Fatal(stream.Err())
	}
	begin := time.Now()
	cancel()
	s.quiet()
	if d := time.Since(begin); d > liveness/2 {
		t.Errorf("ended after %v", d)
	}
	stream.Close()
	eventually(t, "the abort is counted", func() bool {
		return s.metric("vllm:request_success_total", `"abort"`)+s.metric("vllm:request_success_total", `"length"`) == 1
	})
}
