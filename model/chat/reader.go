package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/ardanlabs/jinja"
)

// reader turns a request's JSON into template values: objects in their own order, strings protected.
type reader struct {
	t     *Template
	found bool // a string held a control token
}

// ownNames are variables that kwargs can not set.
var ownNames = map[string]bool{
	"messages": true, "tools": true, "add_generation_prompt": true, "bos_token": true, "eos_token": true,
	"raise_exception": true, "strftime_now": true, "range": true, "namespace": true, "dict": true,
	"joiner": true, "cycler": true, "loop": true, "self": true, "true": true, "false": true, "none": true,
}

// variables returns what the template sees.
func (r *reader) variables(messages json.RawMessage, o Options) (map[string]jinja.Value, error) {
	vars := map[string]jinja.Value{"tools": jinja.None(), "documents": jinja.None()}
	if len(bytes.TrimSpace(o.Kwargs)) > 0 {
		kwargs, err := r.json("chat_template_kwargs", o.Kwargs)
		if err != nil {
			return nil, err
		}
		if !kwargs.IsDict() && !kwargs.IsNone() {
			return nil, inputErrorf("chat_template_kwargs is not an object")
		}
		if kwargs.IsDict() {
			for _, key := range kwargs.AsDict().Keys {
				if ownNames[key] {
					return nil, inputErrorf("chat_template_kwargs can not set %q", key)
				}
				vars[key] = kwargs.AsDict().Data[key]
			}
		}
	}
	if len(bytes.TrimSpace(o.Tools)) > 0 {
		tools, err := r.json("tools", o.Tools)
		if err != nil {
			return nil, err
		}
		vars["tools"] = tools
	}
	list, err := r.messages(messages)
	if err != nil {
		return nil, err
	}
	if o.ContinueFinalMessage {
		if err := r.markFinal(list); err != nil {
			return nil, err
		}
	}
	vars["messages"] = list
	vars["add_generation_prompt"] = jinja.NewBool(o.AddGenerationPrompt)
	vars["bos_token"], vars["eos_token"] = jinja.NewString(r.t.bos), jinja.NewString(r.t.eos)
	return vars, nil
}

// messages reads the messages: contents of text parts are joined where the template wants strings, and the
// arguments of tool calls, which clients send as JSON in a string, become values.
func (r *reader) messages(raw json.RawMessage) (jinja.Value, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	list, err := decode(d, 0)
	if err == nil {
		err = atEnd(d)
	}
	if err != nil {
		return list, inputErrorf("messages: %v", err)
	}
	if !list.IsList() {
		return list, inputErrorf("messages is not an array")
	}
	for i, m := range list.AsList().Items {
		if !m.IsDict() {
			return list, inputErrorf("message %d is not an object", i)
		}
		if err := r.message(m.AsDict()); err != nil {
			return list, inputErrorf("message %d: %v", i, err)
		}
		list.AsList().Items[i] = r.protectMessage(m.AsDict())
	}
	return list, nil
}

// message brings one message into the form templates expect.
func (r *reader) message(m *jinja.Dict) error {
	if role, ok := m.Get("role"); !ok || !role.IsString() {
		return errors.New("role is missing or not a string")
	}
	// Null stays null and a missing content stays missing: templates test for both.
	if content, ok := m.Get("content"); ok {
		switch {
		case content.IsList():
			text, err := textParts(content.AsList())
			if err != nil {
				return err
			}
			if !r.t.listContent {
				m.Set("content", jinja.NewString(text))
			}
		case !content.IsString() && !content.IsNone():
			return errors.New("content is neither a string, nor a list of parts, nor null")
		}
	}
	calls, ok := m.Get("tool_calls")
	if !ok || !calls.IsList() {
		return nil
	}
	for _, call := range calls.AsList().Items {
		if call.IsDict() {
			parseArguments(call.AsDict())
		}
	}
	return nil
}

// textParts joins the texts of a content that is a list, a line each.
func textParts(parts *jinja.List) (string, error) {
	var texts []string
	for i, part := range parts.Items {
		if part.IsString() {
			texts = append(texts, part.AsString())
			continue
		}
		if !part.IsDict() {
			return "", inputErrorf("content part %d is not an object", i)
		}
		kind, _ := part.AsDict().Get("type")
		text, ok := part.AsDict().Get("text")
		if !kind.IsString() || kind.AsString() != "text" || !ok || !text.IsString() {
			return "", inputErrorf("content part %d is not of type text: only text is supported", i)
		}
		texts = append(texts, text.AsString())
	}
	return strings.Join(texts, "\n"), nil
}

// parseArguments replaces arguments that are an object in a string by the object.
func parseArguments(call *jinja.Dict) {
	if f, ok := call.Get("function"); ok && f.IsDict() {
		call = f.AsDict()
	}
	args, ok := call.Get("arguments")
	if !ok || !args.IsString() {
		return
	}
	if strings.TrimSpace(args.AsString()) == "" {
		call.Set("arguments", jinja.NewDict())
		return
	}
	d := json.NewDecoder(strings.NewReader(args.AsString()))
	d.UseNumber()
	if v, err := decode(d, 0); err == nil && v.IsDict() && atEnd(d) == nil {
		call.Set("arguments", v)
	}
}

// protectMessage protects everything in a message; a role is special as templates compare it and build tokens
// from it.
func (r *reader) protectMessage(m *jinja.Dict) jinja.Value {
	out := jinja.NewDict()
	for _, key := range m.Keys {
		v := m.Data[key]
		if key == "role" {
			out.AsDict().Set(key, jinja.NewString(r.t.guard.role(v.AsString())))
			continue
		}
		out.AsDict().Set(r.string(key), r.protect(v))
	}
	return out
}

// markFinal puts the mark behind the text of the last message.
func (r *reader) markFinal(list jinja.Value) error {
	items := list.AsList().Items
	if len(items) == 0 {
		return inputErrorf("continue_final_message: there is no message")
	}
	last := items[len(items)-1].AsDict()
	content, _ := last.Get("content")
	// The mark is added after protection, so a client can not write one. What the space is for: see cutAtMark.
	mark := string(r.t.guard.mark) + " "
	switch {
	case content.IsString():
		last.Set("content", jinja.NewString(content.AsString()+mark))
		return nil
	case content.IsList() && content.AsList().Len() > 0:
		parts := content.AsList().Items
		part := parts[len(parts)-1]
		if part.IsString() {
			parts[len(parts)-1] = jinja.NewString(part.AsString() + mark)
			return nil
		}
		text, _ := part.AsDict().Get("text")
		part.AsDict().Set("text", jinja.NewString(text.AsString()+mark))
		return nil
	}
	return inputErrorf("continue_final_message: the final message has no text")
}

// json reads any JSON with its strings protected.
func (r *reader) json(what string, raw json.RawMessage) (jinja.Value, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	v, err := decode(d, 0)
	if err == nil {
		err = atEnd(d)
	}
	if err != nil {
		return v, inputErrorf("%s: %v", what, err)
	}
	return r.protect(v), nil
}

// protect copies a value with all its strings and keys protected: templates write keys as well, through tojson.
func (r *reader) protect(v jinja.Value) jinja.Value {
	switch {
	case v.IsString():
		return jinja.NewString(r.string(v.AsString()))
	case v.IsList():
		items := make([]jinja.Value, v.AsList().Len())
		for i, item := range v.AsList().Items {
			items[i] = r.protect(item)
		}
		return jinja.NewList(items)
	case v.IsDict():
		out := jinja.NewDict()
		for _, key := range v.AsDict().Keys {
			out.AsDict().Set(r.string(key), r.protect(v.AsDict().Data[key]))
		}
		return out
	}
	return v
}

// string protects one string and notes whether it held a control token.
func (r *reader) string(s string) string {
	s, found := r.t.guard.text(strings.ToValidUTF8(s, "\uFFFD"))
	r.found = r.found || found
	return s
}

// decode reads one value, objects in their order.
func decode(d *json.Decoder, depth int) (jinja.Value, error) {
	if depth > MaxDepth {
		return jinja.None(), inputErrorf("nested deeper than %d", MaxDepth)
	}
	tok, err := d.Token()
	if err != nil {
		return jinja.None(), noEOF(err)
	}
	switch tok := tok.(type) {
	case json.Delim:
		if tok == '[' {
			return decodeList(d, depth)
		}
		return decodeObject(d, depth)
	case bool:
		return jinja.NewBool(tok), nil
	case string:
		return jinja.NewString(tok), nil
	case json.Number:
		if n, err := tok.Int64(); err == nil {
			return jinja.NewInt(n), nil
		}
		f, err := tok.Float64()
		return jinja.NewFloat(f), err
	}
	return jinja.None(), nil
}

// decodeList reads the rest of an array.
func decodeList(d *json.Decoder, depth int) (jinja.Value, error) {
	items := []jinja.Value{}
	for d.More() {
		v, err := decode(d, depth+1)
		if err != nil {
			return v, err
		}
		items = append(items, v)
	}
	_, err := d.Token()
	return jinja.NewList(items), noEOF(err)
}

// decodeObject reads the rest of an object. Of a repeated key the last value stays, at the first one's place.
func decodeObject(d *json.Decoder, depth int) (jinja.Value, error) {
	object := jinja.NewDict()
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return object, noEOF(err)
		}
		name, ok := key.(string)
		if !ok {
			return object, errors.New("an object's key is not a string")
		}
		v, err := decode(d, depth+1)
		if err != nil {
			return object, err
		}
		object.AsDict().Set(name, v)
	}
	_, err := d.Token()
	return object, noEOF(err)
}

// atEnd reports what follows a value.
func atEnd(d *json.Decoder) error {
	if _, err := d.Token(); err != io.EOF {
		return errors.New("something follows the JSON value")
	}
	return nil
}

// noEOF makes the end of the input an error where a value has begun.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
