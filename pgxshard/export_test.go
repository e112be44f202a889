package pgxshard

// FencePlain is the validation that reads are sent behind.
var FencePlain = fencePlain

// AskPlain is the validation that takes a round trip of its own.
var AskPlain = askPlain
