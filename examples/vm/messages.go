package main

import "encoding/json"

// What is said over the line. Every channel has one of two uses, which its
// request names; the stager outside opens all of them. Messages are JSON.
//
//	outside                                         guest
//	  pod    one, opened outside
//	  │ request {"use":"pod","uuid":U,"driver":D}     │
//	  ├───────────────────────────────────────────────►
//	  │ note {"state":"booted"}, then {"state":"ready"}│
//	  ◄───────────────────────────────────────────────┤
//	  │ stream 1: the guest's messages                │
//	  ◄───────────────────────────────────────────────┤
//	  │ note {"stop":true}                            │
//	  ├───────────────────────────────────────────────►
//	  │ result {"code":N,"error":"…"}, then power off │
//	  ◄───────────────────────────────────────────────┤
//
//	  call   one for each call-in, opened outside
//	  │ request {"use":"call","args":[NAME,…],…}      │
//	  ├───────────────────────────────────────────────►
//	  │ note {"state":"started"}                      │
//	  ◄───────────────────────────────────────────────┤
//	  │ streams 0 to 3: the call-in's descriptors     │
//	  ◄───────────────────────────────────────────────►
//	  │ note {"signal":N} or {"width":W,"height":H}   │
//	  ├───────────────────────────────────────────────►
//	  │ result {"code":N,"error":"…"}                 │
//	  ◄───────────────────────────────────────────────┤
//
// A caller talks to the stager outside in the same way, over the control socket: the
// stager joins the caller's channel and one of the guest's.
type request struct {
	Use use `json:"use"`

	UUID   string `json:"uuid,omitempty"`   // pod: its UUID
	Driver string `json:"driver,omitempty"` // pod: what has mounted the roots, a unionfs.Driver's name

	Args []string `json:"args,omitempty"` // call, from here on: the call-in's name and its arguments

	Settings bool    `json:"settings,omitempty"` // descriptor 3 was passed
	Terminal [3]bool `json:"terminal"`           // which of the descriptors 0 to 2 are a terminal, the same one
	Width    uint16  `json:"width,omitempty"`    // of that terminal, in characters
	Height   uint16  `json:"height,omitempty"`
	Term     string  `json:"term,omitempty"` // the variable TERM
}

// use is what a channel is for.
type use string

const (
	usePod  use = "pod"
	useCall use = "call"
)

// note is a message beside the streams. One field is set, or Width and Height.
type note struct {
	State  state  `json:"state,omitempty"`  // from the guest
	Stop   bool   `json:"stop,omitempty"`   // to the guest, as all that follows
	Signal int    `json:"signal,omitempty"` // to send to the call-in
	Width  uint16 `json:"width,omitempty"`  // of the caller's terminal from now on
	Height uint16 `json:"height,omitempty"`
}

// state is what the guest has reached.
type state string

const (
	stateBooted  state = "booted"  // the guest's first process answers
	stateReady   state = "ready"   // all apps have been started
	stateStarted state = "started" // the call-in has been started
)

// result says how a pod or a call-in ended.
type result struct {
	Code  int    `json:"code"`
	Error string `json:"error,omitempty"` // one line; "" if there is nothing to say beside the code
}

// encode returns a message of this file as JSON.
func encode(message any) []byte {
	text, err := json.Marshal(message)
	if err != nil {
		panic(err) // none of the types can fail
	}
	return text
}
