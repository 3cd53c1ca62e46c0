package httpapi

import (
	"bytes"
	"encoding/json"
	"slices"
)

// unsupported holds fields that would change the answer and that the engine does
// not implement: a value other than the harmless ones is refused, never ignored.
type unsupported struct {
	Tools             json.RawMessage `json:"tools"`
	ToolChoice        json.RawMessage `json:"tool_choice"`
	Functions         json.RawMessage `json:"functions"`
	FunctionCall      json.RawMessage `json:"function_call"`
	ResponseFormat    json.RawMessage `json:"response_format"`
	StructuredOutputs json.RawMessage `json:"structured_outputs"`
	GuidedJSON        json.RawMessage `json:"guided_json"`
	GuidedRegex       json.RawMessage `json:"guided_regex"`
	GuidedChoice      json.RawMessage `json:"guided_choice"`
	GuidedGrammar     json.RawMessage `json:"guided_grammar"`
	Suffix            json.RawMessage `json:"suffix"`
	BadWords          json.RawMessage `json:"bad_words"`
	PromptEmbeds      json.RawMessage `json:"prompt_embeds"`
	UseBeamSearch     json.RawMessage `json:"use_beam_search"`
	TruncatePrompt    json.RawMessage `json:"truncate_prompt_tokens"`
	Modalities        json.RawMessage `json:"modalities"`
	Audio             json.RawMessage `json:"audio"`
	WebSearch         json.RawMessage `json:"web_search_options"`
	LogitsProcessors  json.RawMessage `json:"logits_processors"`
	ThinkingBudget    json.RawMessage `json:"thinking_token_budget"`
	RepetitionDetect  json.RawMessage `json:"repetition_detection"`
	KVTransfer        json.RawMessage `json:"kv_transfer_params"`
	Priority          json.RawMessage `json:"priority"`
	LengthPenalty     json.RawMessage `json:"length_penalty"`
	LogprobTokenIDs   json.RawMessage `json:"logprob_token_ids"`
	Watermarking      json.RawMessage `json:"watermarking"`
	TokenOffsets      json.RawMessage `json:"return_token_offsets"`
	PromptText        json.RawMessage `json:"return_prompt_text"`
	JSONSchema        json.RawMessage `json:"json_schema"`
	Regex             json.RawMessage `json:"regex"`
	EBNF              json.RawMessage `json:"ebnf"`
	Grammar           json.RawMessage `json:"grammar"`
	StopRegex         json.RawMessage `json:"stop_regex"`
	NoStopTrim        json.RawMessage `json:"no_stop_trim"`
	LoraPath          json.RawMessage `json:"lora_path"`
}

// maxHarmless is the longest text, in bytes, that is looked at as a harmless value.
const maxHarmless = 256

// check returns an error for the first field with a value that matters.
func (u *unsupported) check() *apiError {
	for _, f := range []struct {
		name     string
		value    json.RawMessage
		harmless []string // compact JSON of values that ask for nothing
	}{
		{"tools", u.Tools, []string{"[]"}},
		{"tool_choice", u.ToolChoice, []string{`"none"`, `"auto"`}},
		{"functions", u.Functions, []string{"[]"}},
		{"function_call", u.FunctionCall, []string{`"none"`, `"auto"`}},
		{"response_format", u.ResponseFormat, []string{`{"type":"text"}`}},
		{"structured_outputs", u.StructuredOutputs, nil},
		{"guided_json", u.GuidedJSON, nil}, {"guided_regex", u.GuidedRegex, nil},
		{"guided_choice", u.GuidedChoice, nil}, {"guided_grammar", u.GuidedGrammar, nil},
		{"suffix", u.Suffix, []string{`""`}},
		{"bad_words", u.BadWords, []string{"[]"}},
		{"prompt_embeds", u.PromptEmbeds, nil},
		{"use_beam_search", u.UseBeamSearch, []string{"false"}},
		{"truncate_prompt_tokens", u.TruncatePrompt, nil},
		{"modalities", u.Modalities, []string{`["text"]`}},
		{"audio", u.Audio, nil},
		{"web_search_options", u.WebSearch, nil},
		{"logits_processors", u.LogitsProcessors, []string{"[]"}},
		{"thinking_token_budget", u.ThinkingBudget, nil},
		{"repetition_detection", u.RepetitionDetect, nil},
		{"kv_transfer_params", u.KVTransfer, nil},
		{"priority", u.Priority, []string{"0"}},
		{"length_penalty", u.LengthPenalty, []string{"1", "1.0"}},
		{"logprob_token_ids", u.LogprobTokenIDs, []string{"[]"}},
		{"watermarking", u.Watermarking, []string{"false"}},
		{"return_token_offsets", u.TokenOffsets, []string{"false"}},
		{"return_prompt_text", u.PromptText, []string{"false"}},
		{"json_schema", u.JSONSchema, nil}, {"regex", u.Regex, nil}, {"ebnf", u.EBNF, nil},
		{"grammar", u.Grammar, []string{`""`}}, {"stop_regex", u.StopRegex, []string{"[]"}},
		{"no_stop_trim", u.NoStopTrim, []string{"false"}},
		{"lora_path", u.LoraPath, nil},
	} {
		if len(f.value) == 0 || string(f.value) == "null" {
			continue
		}
		var compact bytes.Buffer
		// Blanks between tokens do not change a value.
		if len(f.value) <= maxHarmless && json.Compact(&compact, f.value) == nil && slices.Contains(f.harmless, compact.String()) {
			continue
		}
		return badField(f.name, "%s is not supported by this server", f.name)
	}
	return nil
}
