package main

import (
	"crypto/sha256"
	"crypto/sha512"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"

	"headrace/tests/conformance/lines"
)

// secure changes the configuration of a client to the command's security.
func secure(config *sarama.Config, how *lines.Secure) {
	encrypted, err := how.TLS()
	if err != nil {
		panic(err)
	}
	if encrypted != nil {
		config.Net.TLS.Enable, config.Net.TLS.Config = true, encrypted
	}
	if how == nil || how.Mechanism == "" {
		return
	}
	login := &config.Net.SASL
	login.Enable, login.Mechanism = true, sarama.SASLMechanism(how.Mechanism)
	login.User, login.Password = how.User, how.Password
	switch how.Mechanism {
	case "SCRAM-SHA-256":
		login.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &exchange{hash: sha256.New} }
	case "SCRAM-SHA-512":
		login.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &exchange{hash: sha512.New} }
	case "OAUTHBEARER":
		login.TokenProvider = bearer(how.Token)
	}
}

type bearer string

// Token is sarama.AccessTokenProvider's.
func (b bearer) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(b)}, nil
}

// exchange is a client's side of SCRAM, which sarama wants from its user.
type exchange struct {
	hash         scram.HashGeneratorFcn
	conversation *scram.ClientConversation
}

// Begin is sarama.SCRAMClient's.
func (e *exchange) Begin(user, password, authzid string) error {
	client, err := e.hash.NewClient(user, password, authzid)
	if err == nil {
		e.conversation = client.NewConversation()
	}
	return err
}

// Step is sarama.SCRAMClient's.
func (e *exchange) Step(challenge string) (string, error) { return e.conversation.Step(challenge) }

// Done is sarama.SCRAMClient's.
func (e *exchange) Done() bool { return e.conversation.Done() }
