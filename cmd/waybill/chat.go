package main

import (
	"waybill/httpapi"
	"waybill/model"
	"waybill/model/tokenizer"
)

func newChat(src *model.Source, tok *tokenizer.Tokenizer) (httpapi.ChatTemplate, error) {
	return nil, nil
}
