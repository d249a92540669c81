"""What ``ringward doctor`` looks at. Nothing here changes anything."""
