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

// decodeJSON decodes a body into v: one JSON value in UTF-8, not too deep and not of
// too many names. Names are matched exactly and must not repeat: what is read is what
// was written.
func decodeJSON(body []byte, v any) *apiError {
	d, names := shape(body)
	if d > maxJSONDepth {
		return badField("", "the JSON is nested %d levels deep, limit %d", d, maxJSONDepth)
	}
	if names > maxJSONNames {
		return badField("", "the JSON has %d names, limit %d", names, maxJSONNames)
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
		if errors.Is(err, errNullID) {
			return badField(name, "%s: %v", name, errNullID)
		}
		if wrong.Err != nil && wrong.JSONKind == '0' { // a number, but not one that fits
			return badField(name, "%s must be %s, got %s", name, wordFor(wrong.GoType), wrong.JSONValue)
		}
		return badField(name, "%s must be %s, not %s", name, wordFor(wrong.GoType), found(wrong.JSONKind))
	case errors.As(err, &wrong):
		return badField("", "the body must be a JSON object, not %s", found(wrong.JSONKind))
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

// found returns what a value of a kind is in JSON's terms.
func found(k jsontext.Kind) string {
	switch k {
	case '[':
		return "a list"
	case '{':
		return "an object"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case 't', 'f', 'n':
		return map[jsontext.Kind]string{'t': "true", 'f': "false", 'n': "null"}[k]
	}
	return "something else"
}

// shape returns the deepest nesting of arrays and objects, and how many names all
// objects have together.
func shape(body []byte) (most, names int) {
	d := 0
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
		case c == ':':
			names++
		}
	}
	return most, names
}

// errTooMany ends a list that is longer than its limit.
var errTooMany = errors.New("too many elements")

// eachElement calls f for the elements of a list, one by one and at most limit of
// them: a list that is decoded as a whole takes ten times the bytes of its text, and
// a body may be large.
func eachElement(list []byte, limit int, f func(element jsontext.Value) error) error {
	d := jsontext.NewDecoder(bytes.NewBuffer(list))
	if t, err := d.ReadToken(); err != nil || t.Kind() != '[' {
		return errors.New("expected a list")
	}
	for n := 0; d.PeekKind() != ']'; n++ {
		if n == limit {
			return errTooMany
		}
		v, err := d.ReadValue()
		if err != nil {
			return err
		}
		if err := f(v); err != nil {
			return err
		}
	}
	return nil
}

// biasMap is logit_bias as it is written, read entry by entry.
type biasMap map[string]*float64

// UnmarshalJSONFrom refuses more than maxLogitBias entries.
func (m *biasMap) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	switch k := d.PeekKind(); k {
	case 'n':
		*m = nil
		_, err := d.ReadToken()
		return err
	case '{':
	default:
		return &jsonv2.SemanticError{JSONKind: k, GoType: reflect.TypeFor[biasMap]()}
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	*m = biasMap{}
	for d.PeekKind() != '}' {
		if len(*m) == maxLogitBias {
			return badField("logit_bias", "logit_bias has more than %d entries", maxLogitBias)
		}
		name, err := d.ReadToken()
		if err != nil {
			return err
		}
		key := name.String() // before the next read makes name invalid
		var v *float64
		if err := jsonv2.UnmarshalDecode(d, &v); err != nil {
			return err
		}
		(*m)[key] = v
	}
	_, err := d.ReadToken()
	return err
}

// idList is a list of token ids. A null in it is an error: it would be read as
// token 0.
type idList []int32

var errNullID = errors.New("null is not a token id")

// UnmarshalJSON decodes null or a list.
func (l *idList) UnmarshalJSON(b []byte) error {
	*l = nil
	if string(b) == "null" {
		return nil
	}
	if bytes.Contains(b, []byte("null")) {
		return errNullID
	}
	*l = make(idList, 0, bytes.Count(b, []byte{','})+1) // a slice that grows takes several times its end
	return jsonv2.Unmarshal(b, (*[]int32)(l))
}
