package httpapi

import (
	"bytes"
	"encoding/json/jsontext"
	jsonv2 "encoding/json/v2"
	"errors"
	"math"
	"reflect"
	"strconv"
	"strings"
)

// decodeJSON decodes a body into v: one JSON value, not too deep, in UTF-8. Names
// are matched exactly and must not repeat: what is read is what was written.
func decodeJSON(body []byte, v any) *apiError {
	if d := depth(body); d > maxJSONDepth {
		return badField("", "the JSON is nested %d levels deep, limit %d", d, maxJSONDepth)
	}
	err := jsonv2.Unmarshal(body, v, wholeNumbers)
	if err == nil {
		return nil
	}
	var own *apiError
	var wrong *jsonv2.SemanticError
	switch {
	case errors.As(err, &own):
		return own
	// The pointer is the path to the value: /stream_options/include_usage.
	case errors.As(err, &wrong) && wrong.JSONPointer != "":
		name := strings.ReplaceAll(strings.TrimPrefix(string(wrong.JSONPointer), "/"), "/", ".")
		if wrong.Err != nil && wrong.JSONKind == '0' { // a number, but not one that fits
			return badField(name, "%s must be %s, got %s", name, wordFor(wrong.GoType), wrong.JSONValue)
		}
		return badField(name, "%s must be %s, not %s", name, wordFor(wrong.GoType), article(wrong.JSONKind.String()))
	case errors.As(err, &wrong):
		return badField("", "the body must be a JSON object, not %s", article(wrong.JSONKind.String()))
	}
	return badField("", "the body is not valid JSON: %v", err)
}

// wholeNumbers reads 3.0 and 3e2 where an integer is wanted: languages without
// integers write them so.
var wholeNumbers = jsonv2.WithUnmarshalers(jsonv2.JoinUnmarshalers(
	jsonv2.UnmarshalFromFunc(wholeNumber[int]), jsonv2.UnmarshalFromFunc(wholeNumber[int64]),
))

// maxExact is the largest number up to which a float64 holds every integer: what
// is above may not be what was written.
const maxExact = 1 << 53

func wholeNumber[T int | int64](d *jsontext.Decoder, out *T) error {
	if d.PeekKind() != '0' {
		return errors.ErrUnsupported // the usual way, with its error
	}
	raw, err := d.ReadValue()
	if err != nil {
		return err
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil {
		f, ferr := strconv.ParseFloat(string(raw), 64)
		if ferr != nil || f != math.Trunc(f) || math.Abs(f) > maxExact || !bytes.ContainsAny(raw, ".eE") {
			return &jsonv2.SemanticError{JSONKind: '0', JSONValue: raw.Clone(), GoType: reflect.TypeFor[T](), Err: strconv.ErrRange}
		}
		n = int64(f)
	}
	if *out = T(n); int64(*out) != n {
		return &jsonv2.SemanticError{JSONKind: '0', JSONValue: raw.Clone(), GoType: reflect.TypeFor[T](), Err: strconv.ErrRange}
	}
	return nil
}

// wordFor returns what a field of Go type t is in JSON's terms.
func wordFor(t reflect.Type) string {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil {
		return "something else"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int32, reflect.Int64:
		return "a whole number of at most " + itoa(t.Bits()) + " bits"
	case reflect.Float64:
		return "a number"
	case reflect.String:
		return "a string"
	case reflect.Slice:
		return "a list"
	}
	return "an object"
}

func article(kind string) string {
	if kind == "array" || kind == "object" {
		return "an " + kind
	}
	return "a " + kind
}

// depth returns the deepest nesting of arrays and objects.
func depth(body []byte) int {
	d, most := 0, 0
	inString := false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '[' || c == '{':
			d++
			most = max(most, d)
		case c == ']' || c == '}':
			d--
		}
	}
	return most
}

// idList is a list of token ids. A null in it is an error: it would be read as
// token 0.
type idList []int32

// UnmarshalJSON decodes null or a list.
func (l *idList) UnmarshalJSON(b []byte) error {
	*l = nil
	if string(b) == "null" {
		return nil
	}
	if bytes.Contains(b, []byte("null")) {
		return errors.New("null is not a token id")
	}
	return jsonv2.Unmarshal(b, (*[]int32)(l))
}
