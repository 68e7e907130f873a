"""The harness around a policy: template, tokenizer, tool grammar, context builder, engines (pure: no Kafka)."""
