package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"unicode/utf8"

	"github.com/valyala/fasthttp"

	"waybill/actors"
)

// apiError is an answer that is not a completion.
type apiError struct {
	status  int
	message string
	param   string
	code    string // "": the status
}

// Error returns the message.
func (e *apiError) Error() string { return e.message }

// badField says that a field of the request is wrong.
func badField(param, format string, args ...any) *apiError {
	return &apiError{status: 400, param: param, message: fmt.Sprintf(format, args...)}
}

// errorTypes are vLLM's names of error types by status.
var errorTypes = map[int]string{
	400: "BadRequestError", 401: "AuthenticationError", 404: "NotFoundError", 405: "MethodNotAllowedError",
	408: "RequestTimeoutError", 413: "RequestEntityTooLargeError", 429: "RateLimitError", 431: "RequestHeaderFieldsTooLargeError",
	415: "UnsupportedMediaTypeError", 500: "InternalServerError", 503: "ServiceUnavailableError",
}

// errorBody is the object that every error answer holds.
type errorBody struct {
	Error errorObject `json:"error"`
}

type errorObject struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    any     `json:"code"`
}

// maxErrorChars bounds a message, which may quote what the client sent: a wrong
// number of a megabyte is not worth sending back.
const maxErrorChars = 1024

// clip shortens a message to maxErrorChars bytes, at a character's border.
func clip(message string) string {
	if len(message) <= maxErrorChars {
		return message
	}
	n := maxErrorChars
	for n > 0 && !utf8.RuneStart(message[n]) {
		n--
	}
	return message[:n] + "…"
}

// bodyOf returns the JSON of an error.
func bodyOf(e *apiError) []byte {
	o := errorObject{Message: clip(e.message), Type: errorTypes[e.status], Code: e.status}
	if o.Type == "" {
		o.Type = http.StatusText(e.status)
	}
	if e.param != "" {
		o.Param = &e.param
	}
	if e.code != "" {
		o.Code = e.code
	}
	b, err := json.Marshal(errorBody{o})
	if err != nil {
		panic("BUG: httpapi: an error object does not marshal: " + err.Error())
	}
	return b
}

// fromFailure turns an engine's failure into an answer.
func fromFailure(f *actors.Failure) *apiError {
	return &apiError{status: f.Status, message: f.Message, param: f.Param, code: f.Code}
}

// writeError answers with an error.
func (s *Server) writeError(ctx *fasthttp.RequestCtx, err error) {
	var e *apiError
	var f *actors.Failure
	var full *actors.ErrOverloaded
	switch {
	case errors.As(err, &e):
	case errors.As(err, &f):
		e = fromFailure(f)
	case errors.As(err, &full):
		e = &apiError{status: s.cfg.OverloadStatus, message: full.Error()}
		ctx.Response.Header.Set("Retry-After", strconv.Itoa(actors.RetrySeconds(full.RetryAfter)))
	case errors.Is(err, actors.ErrDraining):
		e = &apiError{status: 503, message: err.Error()}
		ctx.Response.Header.Set("Retry-After", "1")
	default:
		e = &apiError{status: 500, message: err.Error()}
	}
	ctx.SetStatusCode(e.status)
	ctx.SetContentType("application/json")
	ctx.SetBody(bodyOf(e))
}
